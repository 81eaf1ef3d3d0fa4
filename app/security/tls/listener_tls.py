"""The TLS of one listener: its certificate and key, the CAs of its clients, and their replacement.

A reload builds a new context from the files, and keeps the old one if that fails. A
context that is in use is never changed: a mismatched pair would leave it half changed,
and a CA cannot be removed from it.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from ...broker.listeners import TlsStatus
from ...settings import ClientAuth
from .certificate import UnreadableCertificate, validity_of
from .distinguished_name import Subject, distinguished_name
from .principal_mapping import ANONYMOUS, NoPrincipal, PrincipalMapping

logger = logging.getLogger(__name__)

_VERIFY_MODES = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class InvalidTlsFiles(Exception):
    """The files of a listener cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Settings of TLS of one listener."""

    certificate_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth: ClientAuth = "none"
    mapping: PrincipalMapping

    @property
    def files(self) -> list[Path]:
        return [f for f in (self.certificate_file, self.key_file, self.client_ca_file) if f is not None]


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    expires_s: float


class ListenerTls:
    """The context with which a listener accepts connections, and what it reports."""

    def __init__(self, options: TlsOptions) -> None:
        """Load the files. Raises InvalidTlsFiles."""
        self.options = options
        self._loaded = _load(options)
        self._reloads = 0
        self._failures = 0
        self._has_failed = False

    @property
    def context(self) -> ssl.SSLContext:
        """The context for new connections; open ones keep theirs."""
        return self._loaded.context

    def reload(self) -> None:
        """Load the files again; may run in a thread.

        Raises:
            InvalidTlsFiles: the files cannot be used; new connections get the old ones.
        """
        try:
            self._loaded = _load(self.options)
        except InvalidTlsFiles:
            self._failures += 1
            self._has_failed = True
            raise
        self._reloads += 1
        self._has_failed = False

    def status(self) -> TlsStatus:
        return TlsStatus(
            certificate_expires_s=self._loaded.expires_s,
            reloads=self._reloads,
            reload_failures=self._failures,
            has_reload_failed=self._has_failed,
        )

    def principal(self, session: ssl.SSLObject) -> str:
        """Return the principal of a peer after its handshake.

        Raises:
            NoPrincipal: the mapping rules leave this certificate out.
        """
        certificate = session.getpeercert()
        if not certificate:
            return ANONYMOUS
        subject = cast("Subject", certificate.get("subject", ()))
        name = distinguished_name(subject)
        if not name:
            raise NoPrincipal("the certificate has no subject")
        return self.options.mapping.principal(name)


def _load(options: TlsOptions) -> _Loaded:
    # OpenSSL's errors do not name the file.
    texts = {file: read_file(file) for file in options.files}
    try:
        _, expires = validity_of(texts[options.certificate_file])
    except UnreadableCertificate as error:
        raise InvalidTlsFiles(f"{options.certificate_file} cannot be read: {error}") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(options.certificate_file, options.key_file, password=no_password)
        warn_if_readable(options.key_file)
    except ssl.SSLError as error:
        raise InvalidTlsFiles(_pair_problem(options, error)) from error
    if options.client_auth != "none":
        if options.client_ca_file is None:
            raise InvalidTlsFiles(
                f"client certificates are {options.client_auth}, but no file names their CA; set tls_client_ca_file"
            )
        try:
            context.load_verify_locations(options.client_ca_file)
        except ssl.SSLError as error:
            raise InvalidTlsFiles(
                f"{options.client_ca_file} holds no certificates of client CAs: {error}"
            ) from error
        # A resumed session would keep a principal whose certificate has expired since.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    context.verify_mode = _VERIFY_MODES[options.client_auth]
    return _Loaded(context, expires.timestamp())


def read_file(file: Path) -> str:
    """Return the text of a file of TLS. Raises InvalidTlsFiles."""
    try:
        return file.read_text("ascii", errors="replace")
    except OSError as error:
        raise InvalidTlsFiles(f"{file} cannot be read: {error.strerror}") from error


def no_password() -> NoReturn:
    """Refuse an encrypted key: without this, OpenSSL asks on the terminal."""
    raise InvalidTlsFiles("the key is encrypted; store it without a password, readable by the broker alone")


def _pair_problem(options: TlsOptions, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return (
            f"the key in {options.key_file} does not belong to the certificate in {options.certificate_file}"
        )
    return (
        f"the certificate in {options.certificate_file} and the key in {options.key_file} cannot be used: "
        f"{error}; both must be in PEM"
    )


def warn_if_readable(path: Path) -> None:
    """Log a warning if every user of this machine can read ``path``. Raises OSError."""
    if path.stat().st_mode & 0o004:
        logger.warning("%s can be read by every user of this machine; run: chmod o-r %s", path, path)
