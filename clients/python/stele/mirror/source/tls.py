"""TLS towards the source."""

from __future__ import annotations

import ssl

from ..errors import MirrorError
from ..properties import Tls


def context_of(tls: Tls) -> ssl.SSLContext:
    """Return the context for these files.

    Raises:
        MirrorError: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca_file, cadata=tls.ca_pem)
    except (OSError, ValueError) as error:
        where = f"ssl.ca.location {tls.ca_file}" if tls.ca_file else "ssl.ca.pem"
        raise MirrorError(f"{where} cannot be used: {_words_of(error)}") from error
    # A certificate that is named is trusted even if it is not that of a CA, but of one broker.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = tls.checks_host
    if not tls.checks_certificate:
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate_file is not None:
        try:
            # A password that is empty still keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(tls.certificate_file, tls.key_file, password=tls.key_password or "")
        except (OSError, ValueError) as error:
            raise MirrorError(
                f"ssl.certificate.location {tls.certificate_file} and its key cannot be used: {_words_of(error)}"
            ) from error
    return context


def refusal(error: ssl.SSLError) -> str:
    """Return what a failed handshake means, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}; name its CA with ssl.ca.location"
    if error.reason in ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return "it does not speak TLS; change security.protocol, or the port"
    if (
        error.reason
        and "ALERT" in error.reason
        and ("CERTIFICATE" in error.reason or "UNKNOWN_CA" in error.reason)
    ):
        return f"it refused the certificate of the mirror: {_words_of(error)}; see ssl.certificate.location"
    return f"TLS failed: {_words_of(error)}"


def _words_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
