"""URL, login, TLS files and timeouts of a client.

They come from arguments or the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from .credentials import NO_CREDENTIALS, Credentials, resolve

DEFAULT_HOST = "127.0.0.1"
DEFAULT_TCP_PORT = 9009
DEFAULT_HTTP_URL = "http://127.0.0.1:8080"
DEFAULT_REGISTRY_URL = "http://127.0.0.1:8081"


FilePath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Files in PEM. Without ``ca_file`` the CAs of the system are trusted.

    ``certificate_file`` is the client's own, with the chain; ``key_file`` may be left out
    if the key is in the same file.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> TlsFiles:
        """Read ``STELE_CA_FILE``, ``STELE_CERTIFICATE_FILE`` and ``STELE_KEY_FILE``."""
        env = os.environ if environment is None else environment
        return cls(
            ca_file=env.get("STELE_CA_FILE") or None,
            certificate_file=env.get("STELE_CERTIFICATE_FILE") or None,
            key_file=env.get("STELE_KEY_FILE") or None,
        )

    def or_else(self, other: TlsFiles) -> TlsFiles:
        """Return these files, and those of ``other`` where none is named.

        A certificate brings its key.
        """
        pair = self if self.certificate_file else other
        return TlsFiles(
            ca_file=self.ca_file or other.ca_file,
            certificate_file=pair.certificate_file,
            key_file=pair.key_file,
        )


NO_FILES = TlsFiles()
_TLS_OPTIONS = ("ca_file", "certificate_file", "key_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The URL, the TLS files and the timeouts of a client.

    ``url``: ``stele://host:port`` (binary protocol) or ``http://host:port``; with TLS
    ``stele+tls://`` or ``https://``, to which ``?ca_file=PATH`` and the other names of
    ``TlsFiles`` may be added. ``stele://host1:port,host2:port`` names several brokers of a
    cluster: a client begins at a random one, and goes on with the next when one cannot be reached.
    The scheme may be repeated before each.
    ``stele://user@host`` logs in with the password in STELE_PASSWORD, or in the file that
    STELE_PASSWORD_FILE names; ``user:password@host`` works, too, and is never printed.
    ``credentials``: take precedence over the URL, which takes precedence over STELE_USER,
    and STELE_API_KEY or STELE_API_KEY_FILE.
    ``tls``: takes precedence over the URL, which takes precedence over the environment.
    ``timeout_s``: the most a call may take, not counting the wait of a long poll.
    ``connect_timeout_s``: how long a call tries to connect, with growing pauses,
    before it raises ``BrokerUnavailableError``; at most the timeout of the call.
    """

    url: str = field(repr=False)
    tls: TlsFiles = NO_FILES
    credentials: Credentials = NO_CREDENTIALS
    timeout_s: float = 30.0
    connect_timeout_s: float = 3.0

    def __post_init__(self) -> None:
        endpoint = Endpoint.parse(self.url)
        if self.tls != NO_FILES and endpoint.tls is None:
            raise ValueError(f"{shown_url(self.url)!r} is without TLS, for which files are given; {_USE_TLS}")
        if self.timeout_s <= 0 or self.connect_timeout_s <= 0:
            raise ValueError("timeout_s and connect_timeout_s must be greater than 0")

    @property
    def endpoint(self) -> Endpoint:
        """The parsed URL, with login and TLS files.

        They come from arguments, URL and environment.

        Raises:
            ValueError: a password is missing, or a file with a secret cannot be used.
        """
        endpoint = Endpoint.parse(self.url)
        credentials = resolve(self.credentials, endpoint.credentials, os.environ)
        files = endpoint.tls
        if files is not None:
            files = self.tls.or_else(files).or_else(TlsFiles.from_environment())
        first, *others = (replace(one, credentials=credentials, tls=files, others=()) for one in endpoint.all)
        return replace(first, others=tuple(others))


_ESCAPE = "in a password, write / ? # @ [ and ] as %2F %3F %23 %40 %5B and %5D"
_USE_TLS = "write stele+tls://HOST:PORT or https://HOST:PORT"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A parsed URL; ``http_url`` is the base URL if the transport is HTTP, ``tls`` is None without TLS.

    ``others`` are the further brokers of a URL that names several.
    """

    transport: Literal["tcp", "http"]
    host: str
    port: int
    http_url: str = ""
    tls: TlsFiles | None = None
    credentials: Credentials = NO_CREDENTIALS
    others: tuple[Endpoint, ...] = ()

    @property
    def all(self) -> tuple[Endpoint, ...]:
        """All brokers of the URL, in its order."""
        return (self, *self.others)

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Parse a URL of the schemes ``stele``, ``stele+tls``, ``http`` and ``https``.

        Raises ValueError for others.
        """
        if not url.isprintable():
            # ``urlsplit`` would leave some of them out, including those of a password.
            raise ValueError(
                f"{shown_url(url)!r} has control characters, such as a line break; write the URL without them"
            )
        url = _with_one_scheme(url)
        try:
            parts = urlsplit(url)
        except ValueError:
            # Its message may contain the password.
            raise ValueError(f"{shown_url(url)!r} is not a valid URL; {_ESCAPE}") from None
        login, at, hosts = parts.netloc.rpartition("@")
        if "@" in login and "," in login:
            raise _not_written_once(url)
        first, *others = (
            cls._parse_one(url.replace(parts.netloc, f"{login}{at}{host}", 1)) for host in hosts.split(",")
        )
        return replace(first, others=tuple(others))

    @classmethod
    def _parse_one(cls, url: str) -> Endpoint:
        """Parse a URL of one broker. Raises ValueError."""
        parts = urlsplit(url)
        given, url = url, shown_url(url)
        try:
            port = parts.port
        except ValueError:
            raise ValueError(
                f"{url!r} has no valid port; write a number from 1 to 65535, and {_ESCAPE}"
            ) from None
        if not parts.hostname or parts.scheme not in ("stele", "stele+tls", "http", "https"):
            raise ValueError(
                f"{url!r} is not the URL of a broker; write stele://HOST:9009 (binary protocol) "
                "or http://HOST:8080; with TLS, stele+tls:// or https://"
            )
        if "@" in parts.path:
            raise ValueError(f"{url!r} has a password that ends its host; {_ESCAPE}")
        has_tls = parts.scheme in ("stele+tls", "https")
        if parts.fragment or (parts.query and not has_tls):
            raise ValueError(
                f"{url!r} has a query or a fragment; write the URL as {parts.scheme}://HOST:PORT"
            )
        tls = _tls_options(url, parts.query) if has_tls else None
        credentials = Credentials(user=unquote(parts.username or ""), password=unquote(parts.password or ""))
        if parts.scheme.startswith("stele"):
            if parts.path.strip("/"):
                raise ValueError(f"{url!r} has a path; write the URL as stele://HOST:PORT")
            return cls("tcp", parts.hostname, port or DEFAULT_TCP_PORT, tls=tls, credentials=credentials)
        default_port = 443 if parts.scheme == "https" else 80
        given = given.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)
        base = given.partition("?")[0] if has_tls else given
        return cls("http", parts.hostname, port or default_port, base.rstrip("/"), tls, credentials)


def broker_urls(url: str) -> list[str]:
    """Return a URL for each broker that ``url`` names, with its login and options.

    Raises ValueError.
    """
    url = _with_one_scheme(url)
    netloc = urlsplit(url).netloc
    login, at, hosts = netloc.rpartition("@")
    return [url.replace(netloc, f"{login}{at}{host}", 1) for host in hosts.split(",")]


def http_url_of(url: str, port: int, *, has_tls: bool) -> str:
    """Return the HTTP URL of the one broker that ``url`` names.

    It has the same host, login and options.
    """
    parts = urlsplit(url)
    login, at, address = parts.netloc.rpartition("@")
    host = re.sub(r":\d*$", "", address)
    query = f"?{parts.query}" if parts.query else ""
    return f"{'https' if has_tls else 'http'}://{login}{at}{host}:{port}{query}"


def joined_urls(urls: Sequence[str]) -> str:
    """Return a URL of the brokers of all, with the login and the options of the first."""
    netlocs = [urlsplit(url).netloc for url in urls]
    hosts = [netlocs[0], *(netloc.rpartition("@")[2] for netloc in netlocs[1:])]
    return urls[0].replace(netlocs[0], ",".join(hosts), 1)


def _with_one_scheme(url: str) -> str:
    """Return ``http://a,b`` for ``http://a,http://b``, as other systems write it.

    Raises ValueError.
    """
    scheme, slashes, rest = url.partition("://")
    *firsts, last = rest.split(f",{scheme}://")
    hosts = [*(host.removesuffix("/") for host in firsts), last]
    joined = ",".join(hosts)
    if (
        ("," in rest and "://" in joined.partition("?")[0])
        or any("@" in host for host in hosts[1:])
        or any("/" in host or "?" in host for host in hosts[:-1])
    ):
        raise _not_written_once(url)
    return scheme + slashes + joined


def _not_written_once(url: str) -> ValueError:
    return ValueError(
        f"{shown_url(url)!r} gives several brokers a scheme, a login, a path or options each; "
        "write them once for all, as in http://USER@HOST1:8080,HOST2:8080"
    )


_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)
_ADDRESS = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\])(:\d+)?", re.IGNORECASE)
_HIDDEN = "…"


def shown_url(url: str) -> str:
    """Return ``url`` without login, query and fragment, for messages.

    What looks like no address may be a part of a password, and is not shown either.
    """
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        scheme, rest = "", url
    shown = re.split("[?#]", rest.rpartition("@")[2])[0]
    hosts = shown.partition("/")[0].split(",")
    if scheme and not _SCHEME.fullmatch(scheme):
        return _HIDDEN
    # Without a scheme, alice:secret/x looks like an address, too.
    is_address = all(map(_ADDRESS.fullmatch, hosts)) and shown.isprintable() and (scheme or "/" not in shown)
    return f"{scheme}{slashes}{shown if is_address or not shown else _HIDDEN}"


def has_password(url: str) -> bool:
    """Return whether ``url`` holds a password, which must not be an argument.

    Arguments are visible to other users of the machine.
    """
    try:
        # Each of several brokers may have one, which is refused where the URL is parsed.
        return any(
            urlsplit(one if "://" in one else f"//{one}").password is not None
            for one in (url, *url.split(","))
        )
    except ValueError:
        # It is no URL, which is reported where it is parsed.
        return False


def _tls_options(url: str, query: str) -> TlsFiles:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in _TLS_OPTIONS or not value:
            # Without the value, which may be a secret.
            raise ValueError(
                f"{url!r} has an option that is unknown or empty; the options are {', '.join(_TLS_OPTIONS)}"
            )
    return TlsFiles(**options)


def url_from_environment(environment: Mapping[str, str] | None = None) -> str:
    """Read the broker's URL from environment variables.

    ``STELE_URL`` takes precedence. Otherwise ``STELE_CLIENT_TCP_ENABLED`` selects
    ``stele://STELE_CLIENT_TCP_HOST:STELE_CLIENT_TCP_PORT`` or
    ``STELE_CLIENT_HTTP_URL``. If it is not set, HTTP is used when only its URL is set.

    Raises:
        ValueError: a variable has an invalid value; the message names it.
    """
    env = os.environ if environment is None else environment
    if url := env.get("STELE_URL"):
        return url
    host, port = env.get("STELE_CLIENT_TCP_HOST"), env.get("STELE_CLIENT_TCP_PORT")
    http_url = env.get("STELE_CLIENT_HTTP_URL")
    enabled = env.get("STELE_CLIENT_TCP_ENABLED")
    use_tcp = not http_url or bool(host or port) if not enabled else _boolean(enabled)
    if not use_tcp:
        return http_url or DEFAULT_HTTP_URL
    if port and not (port.isascii() and port.isdigit()):
        raise ValueError(f"STELE_CLIENT_TCP_PORT is {port!r}; it must be a port number")
    host = host or DEFAULT_HOST
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"stele://{host}:{port or DEFAULT_TCP_PORT}"


def registry_url_from_environment(environment: Mapping[str, str] | None = None) -> str:
    """Read the URL of the schema registry from ``STELE_REGISTRY_URL``."""
    env = os.environ if environment is None else environment
    return env.get("STELE_REGISTRY_URL") or DEFAULT_REGISTRY_URL


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "1" | "true" | "t" | "yes" | "y" | "on":
            return True
        case "0" | "false" | "f" | "no" | "n" | "off":
            return False
        case _:
            raise ValueError(f"STELE_CLIENT_TCP_ENABLED is {text!r}; it must be true or false")
