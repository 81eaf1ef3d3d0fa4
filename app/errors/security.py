"""Errors about logins, users and API keys."""

from __future__ import annotations

from .base import RequestError, short


class AuthenticationFailed(RequestError):
    """One text for all reasons, so that a client learns nothing from it; the log has the reason."""

    def __init__(self) -> None:
        super().__init__("the login failed; check the user and password, the API key or the token")


class AuthenticationRequired(RequestError):
    def __init__(self, how: str) -> None:
        super().__init__(f"this listener requires a login; {how}")


class CredentialError(RequestError):
    """A user or an API key cannot be changed as requested."""


class InvalidCredential(CredentialError):
    def __init__(self, user: str, reason: str) -> None:
        super().__init__(f"the credentials of {short(user)!r} cannot be stored: {reason}")
        self.reason = reason


class DuplicateUser(CredentialError):
    def __init__(self, user: str) -> None:
        super().__init__(f"user {short(user)!r} exists; set its password, or delete it first")


class UnknownCredential(CredentialError):
    """``kind`` is ``user`` or ``API key``."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {short(name)!r} does not exist; list what exists, and correct the name")


class TooManyCredentials(CredentialError):
    def __init__(self, kind: str, limit: int) -> None:
        super().__init__(f"there are {limit} {kind}, which is the limit; delete those that are not used")
        self.limit = limit


class AuthorizationError(RequestError):
    """The principal may not do this; the text does not tell whether the object exists."""

    def __init__(self, principal: str, operation: str, what: str) -> None:
        super().__init__(
            f"{short(principal)} is not allowed to {operation} {what}; ask an administrator for an access rule (stele acls add)"
        )


class TopicAuthorizationFailed(AuthorizationError):
    pass


class GroupAuthorizationFailed(AuthorizationError):
    pass


class ClusterAuthorizationFailed(AuthorizationError):
    pass


class TransactionalIdAuthorizationFailed(AuthorizationError):
    pass


class AclError(RequestError):
    """Access rules cannot be listed or changed as requested."""


class AuthorizationDisabled(AclError):
    def __init__(self) -> None:
        super().__init__(
            "this broker does not check access rules: every client may do everything; set STELE_AUTHORIZATION=acls"
        )


class InvalidAcl(AclError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the access rule is not valid: {reason}")


class TooManyAcls(AclError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"there may be {limit} access rules at most; remove some, or use prefixes")
        self.limit = limit
