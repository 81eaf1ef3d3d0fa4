"""Load credentials of AWS from files: profiles, their roles, single sign-on.

obstore reads the environment and asks the machine, but no files. botocore knows all that can stand in them, and is
imported only where they are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore.store import S3Credential

# How often a file is read again: other programs renew the keys in it.
_KEPT = timedelta(minutes=1)
_PROFILES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
# With one of these, files do not count, as in the programs of AWS.
_FIRST = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")


def profile_of(environment: Mapping[str, str]) -> str | None:
    """Return the profile whose credentials count.

    None if the environment has credentials itself, or there is no file with some.
    """
    if any(environment.get(name) for name in _FIRST):
        return None
    for name in _PROFILES:
        if environment.get(name):
            return environment[name]
    files = (Path(environment.get(name) or default).expanduser() for name, default in _FILES.items())
    return "default" if any(file.is_file() for file in files) else None


class ProfileCredentials:
    """The credentials of a profile, as obstore asks for them.

    Raises:
        ValueError: they cannot be found; the text says what to do.
    """

    def __init__(self, profile: str) -> None:
        try:
            import botocore.session
        except ImportError:
            raise ValueError(
                f"the profile {profile!r} of AWS is in files, which botocore reads: pip install botocore, or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from None
        self._profile = profile
        self._open: Any = botocore.session.Session
        self._session: Any = self._open(profile=profile)
        self._credentials = self._found()

    @property
    def region(self) -> str | None:
        """The region of the profile."""
        return self._session.get_config_variable("region")

    def _found(self) -> Any:
        from botocore.exceptions import BotoCoreError

        try:
            credentials = self._session.get_credentials()
        except BotoCoreError as error:
            raise ValueError(f"the profile {self._profile!r} of AWS cannot be used: {error}") from error
        if credentials is None:
            raise ValueError(
                f"the profile {self._profile!r} of AWS has no credentials: name another with AWS_PROFILE, or log in "
                "again if it uses single sign-on"
            )
        return credentials

    def __call__(self) -> S3Credential:
        """Return the credentials of now; a thread of obstore calls this."""
        from botocore.credentials import RefreshableCredentials

        if not isinstance(self._credentials, RefreshableCredentials):
            # Its session would go on with what it has read.
            self._session = self._open(profile=self._profile)
            self._credentials = self._found()
        frozen = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _KEPT,
        }


def region_of(environment: Mapping[str, str]) -> str | None:
    """Return the region that the environment names."""
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None
