"""The login policy of each listener, and the configurations that a start refuses.

Addresses and settings may be refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from ..settings import ListenerName, LoginMode, Settings
from .audit import Peer
from .authenticator import Authenticator
from .authorizer import Access, Authorizer
from .credentials import Credentials
from .principal import Principal
from .sasl import Mechanism
from .tls.listener_tls import ListenerTls

LISTENERS: tuple[ListenerName, ...] = get_args(ListenerName)
# Their messages contain a secret that a reader could reuse.
_REVEALING: tuple[Mechanism, ...] = ("PLAIN", "OAUTHBEARER")


class UnsafeSettings(Exception):
    """The broker does not start with these settings; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The login policy of one listener.

    ``mode`` none: there are no logins. optional: a client without a login is
    ``User:ANONYMOUS``. required: it can do nothing but log in.
    """

    listener: ListenerName
    mode: LoginMode = "none"
    authenticator: Authenticator | None = None
    credentials: Credentials | None = None
    login_timeout_ms: int = 10_000
    session_ms_max: int = 0
    # Whether passwords may be stored over a connection that others could read.
    may_reveal: bool = False
    # Whether some listener has logins: then only logged-in clients list and change users.
    guards_users: bool = False
    # None: every client may do everything.
    authorizer: Authorizer | None = None

    def access(self, principal: Principal, host: str) -> Access | None:
        """Return what ``principal`` may do from ``host``, None if that is not checked."""
        authorizer = self.authorizer
        return None if authorizer is None else authorizer.access(self.listener, principal, host)

    @property
    def is_required(self) -> bool:
        return self.mode == "required"

    @property
    def active(self) -> Authenticator | None:
        """The authenticator, None without logins."""
        return None if self.mode == "none" else self.authenticator

    def blocks(self, principal: Principal) -> bool:
        """Return whether ``principal`` must log in before anything else."""
        return self.is_required and principal.is_anonymous

    def peer(self, address: str, host: str) -> Peer:
        return Peer(self.listener, address, host)

    def may_carry_secrets(self, host: str, *, is_encrypted: bool) -> bool:
        """Return whether a peer at ``host`` may send a password to be stored."""
        return is_encrypted or self.may_reveal or is_loopback(host)


def mode_of(settings: Settings, listener: ListenerName) -> LoginMode:
    """Return the mode of ``listener``: its own, or that of all listeners."""
    return settings.listener(listener).authentication or settings.authentication


def checks_acls(settings: Settings) -> bool:
    """Return whether access rules decide: as the setting says, otherwise if some listener requires logins."""
    if settings.authorization is not None:
        return settings.authorization == "acls"
    return any(mode_of(settings, listener) == "required" for listener in settings.listeners)


def super_users_of(settings: Settings) -> list[Principal]:
    """Return the principals that may do everything.

    Raises:
        UnsafeSettings: one is not written as a principal.
    """
    try:
        return [Principal.parse(text.strip()) for text in settings.super_users.split(";") if text.strip()]
    except ValueError as error:
        raise UnsafeSettings(f"super_users: {error}; separate several by semicolons") from error


def mechanisms_of(settings: Settings) -> list[Mechanism]:
    """Return the SASL mechanisms to offer, in the order of the setting.

    Raises:
        UnsafeSettings: one does not exist.
    """
    known: tuple[Mechanism, ...] = get_args(Mechanism)
    mechanisms: list[Mechanism] = []
    for name in settings.sasl_mechanisms.split(","):
        wanted = name.strip().upper()
        if wanted not in known:
            raise UnsafeSettings(
                f"sasl_mechanisms names {name.strip()!r}; use one or more of {', '.join(known)}"
            )
        mechanism = wanted
        if mechanism not in mechanisms:
            mechanisms.append(mechanism)
    if settings.oauth_jwks and "OAUTHBEARER" not in mechanisms:
        mechanisms.append("OAUTHBEARER")
    return mechanisms


def check_exposure(settings: Settings, tls: Mapping[ListenerName, ListenerTls | None]) -> None:
    """Refuse listeners that anybody on the network could use, or read passwords from.

    Raises:
        UnsafeSettings: one of them is open, and no setting says that this is meant.
    """
    if is_loopback(settings.host):
        return
    for listener in settings.listeners:
        listener_tls = tls.get(listener)
        has_certificates = listener_tls is not None and listener_tls.options.client_auth == "required"
        is_closed = mode_of(settings, listener) == "required" or has_certificates
        if not is_closed and not settings.allow_anonymous_network:
            raise UnsafeSettings(
                f"the {listener} listener would let every client that reaches {settings.host} read, write and delete all "
                f"{'schemas' if listener == 'registry' else 'topics'}: require logins with STELE_AUTHENTICATION=required, or accept this with "
                "STELE_ALLOW_ANONYMOUS_NETWORK=true (or bind to 127.0.0.1)"
            )
        if (
            mode_of(settings, listener) != "none"
            and listener_tls is None
            and not settings.allow_plaintext_passwords
            and (listener in ("http", "registry") or any(m in _REVEALING for m in mechanisms_of(settings)))
        ):
            raise UnsafeSettings(
                f"passwords and keys would reach the {listener} listener on {settings.host} unencrypted: set "
                "STELE_TLS_CERTIFICATE_FILE and STELE_TLS_KEY_FILE, or accept this with "
                "STELE_ALLOW_PLAINTEXT_PASSWORDS=true"
            )


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is an address of this machine alone."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
