"""A client's credentials: user and password, API key or token, from arguments, URL or environment.

No secret is in a ``repr``, an error message or a log line.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

TokenSource = Callable[[], str]

_KEY_PREFIX = "stele"
_FILE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credentials for a login; without any of these the client does not log in.

    ``token`` is called for each login, also from other threads, and again after a token
    was refused; it returns a token of an issuer that is valid for a while.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    token: TokenSource | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return bool(self.user or self.api_key or self.token)

    @property
    def authorization(self) -> str:
        """The value of the HTTP header of this name; empty for tokens, which change."""
        if self.api_key:
            return f"Bearer {self.api_key}"
        if self.user:
            return f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"
        return ""

    @property
    def api_key_id(self) -> str:
        """The public part of the API key."""
        return self.api_key.split("_")[1]


NO_CREDENTIALS = Credentials()


class LoginOptions(TypedDict, total=False):
    """The arguments of a client that log in: a user with one of the passwords, a key, or a token.

    ``user`` may stand in the URL (``stele://user@host``) or in STELE_USER. Without
    ``password`` and ``password_file``, the password is in STELE_PASSWORD, or in the file that
    STELE_PASSWORD_FILE names. Without ``api_key``, a key is in STELE_API_KEY or
    STELE_API_KEY_FILE. ``token`` is called for each login, perhaps in another thread, and
    returns a token of an issuer. A login that is refused raises ``AuthenticationError``.
    """

    user: str | None
    password: str | None
    password_file: str | os.PathLike[str] | None
    api_key: str | None
    token: TokenSource | None


def given_credentials(options: LoginOptions) -> Credentials:
    """Return the credentials in the arguments of a client. Raises ValueError."""
    password, file = options.get("password"), options.get("password_file")
    if file is not None:
        if password is not None:
            raise ValueError("give password or password_file, not both")
        password = read_secret(file)
    return Credentials(
        user=options.get("user") or "",
        password=password or "",
        api_key=options.get("api_key") or "",
        token=options.get("token"),
    )


def resolve(given: Credentials, of_url: Credentials, environment: Mapping[str, str]) -> Credentials:
    """Return what to log in with: arguments come first, then the URL, then the environment.

    A user takes its password from wherever there is one, in the same order.

    Raises:
        ValueError: there is a user and no password, or the environment has two logins.
    """
    if given.api_key or given.token:
        if given.user or (given.api_key and given.token):
            raise ValueError("give one of user, api_key and token")
        return _checked(given)
    user = given.user or of_url.user
    if not user:
        if given.password:
            raise ValueError("there is a password and no user; give user, or write stele://USER@HOST")
        user, api_key = environment.get("STELE_USER", ""), _secret("STELE_API_KEY", environment)
        if user and api_key:
            raise ValueError("STELE_USER and STELE_API_KEY are both set; unset one of them")
        if api_key:
            return _checked(Credentials(api_key=api_key))
        if not user:
            return NO_CREDENTIALS
    password = given.password or (of_url.password if user == of_url.user else "")
    password = password or _secret("STELE_PASSWORD", environment)
    if not password:
        raise ValueError(
            f"there is no password for user {user!r}; set STELE_PASSWORD_FILE or STELE_PASSWORD, or give password"
        )
    return Credentials(user=user, password=password)


def read_secret(path: str | os.PathLike[str]) -> str:
    """Return the first line of a file that only its owner can read.

    Raises:
        ValueError: the file cannot be read, is empty, or can be read by others.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            # A pipe or a mounted secret of an orchestrator may have the mode of its own kind.
            if stat.S_ISREG(mode) and mode & 0o007:
                raise ValueError(f"{path} can be read by every user of this machine; run: chmod 600 {path}")
            line = file.readline(_FILE_BYTES_MAX).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ValueError(f"{path} cannot be read: {why}") from None
    if not line:
        raise ValueError(f"{path} is empty; its first line must have the secret")
    return line


def _secret(name: str, environment: Mapping[str, str]) -> str:
    """Return the variable ``name``, or what is in the file that ``name_FILE`` names."""
    if value := environment.get(name):
        return value
    path = environment.get(f"{name}_FILE")
    return read_secret(path) if path else ""


def _checked(credentials: Credentials) -> Credentials:
    if credentials.api_key:
        parts = credentials.api_key.split("_", 2)
        if len(parts) != 3 or parts[0] != _KEY_PREFIX or not credentials.api_key.isascii():
            raise ValueError("the API key is not one that `stele key create` printed: stele_ID_SECRET")
    return credentials
