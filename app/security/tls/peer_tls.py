"""TLS for requests to the HTTP listeners of the other brokers of a cluster.

A broker verifies the certificate of its peer, including its host name, and presents one of its own if the listeners
require certificates. The files are loaded again as those of the listeners are.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from .listener_tls import InvalidTlsFiles, TlsOptions, no_password, read_file


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTlsOptions:
    """Settings of TLS to other brokers.

    ``listener`` is the TLS of the HTTP listener of this broker; those of the others have the same. ``ca_file`` has
    the only CAs that are trusted. Without it, those of the system are, those of clients, and the certificates in the
    file of the listener, which all brokers may share. ``certificate_file`` and ``key_file`` are presented instead of
    those of the listener.
    """

    listener: TlsOptions
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None

    @property
    def files(self) -> list[Path]:
        own = [file for file in (self.ca_file, self.certificate_file, self.key_file) if file is not None]
        return [*self.listener.files, *own]


class PeerTls:
    """The context for connections to other brokers."""

    def __init__(self, options: PeerTlsOptions) -> None:
        """Load the files. Raises InvalidTlsFiles."""
        self.options = options
        self._context = _load(options)

    @property
    def context(self) -> ssl.SSLContext:
        """The context for new connections: another object after each reload."""
        return self._context

    def reload(self) -> None:
        """Load the files again; may run in a thread.

        Raises:
            InvalidTlsFiles: the files cannot be used; new connections get the old ones.
        """
        self._context = _load(self.options)


def _load(options: PeerTlsOptions) -> ssl.SSLContext:
    listener = options.listener
    for file in options.files:
        read_file(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A certificate that is trusted by itself need not lead to a CA.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if options.ca_file is None:
        context.load_default_certs()
        trusted = [listener.certificate_file]
        if listener.client_ca_file is not None:
            trusted.append(listener.client_ca_file)
    else:
        trusted = [options.ca_file]
    for file in trusted:
        try:
            context.load_verify_locations(file)
        except ssl.SSLError as error:
            raise InvalidTlsFiles(f"{file} holds no certificates: {error}") from error
    pair = None
    if options.certificate_file is not None and options.key_file is not None:
        pair = options.certificate_file, options.key_file
    elif listener.client_auth == "required":
        # Not where certificates are optional: the CAs of the clients may not have issued that of the listener.
        pair = listener.certificate_file, listener.key_file
    if pair is not None:
        try:
            context.load_cert_chain(*pair, password=no_password)
        except ssl.SSLError as error:
            raise InvalidTlsFiles(
                f"the certificate in {pair[0]} and the key in {pair[1]} cannot be used: {error}"
            ) from error
    return context
