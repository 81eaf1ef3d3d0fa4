"""Read the validity of an X.509 certificate: the little DER that this takes (RFC 5280, X.690)."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _INTEGER, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x02, 0x17, 0x18, 0xA0
_LONG_LENGTH = 0x80
_LENGTH_BYTES_MAX = 4


class UnreadableCertificate(ValueError):
    """The text holds no certificate that can be read."""


def validity_of(pem: str) -> tuple[datetime, datetime]:
    """Return from when and until when the first certificate of ``pem`` is valid.

    Raises:
        UnreadableCertificate: there is none, or it is malformed.
    """
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    if begin < 0 or end < 0:
        raise UnreadableCertificate(f"it holds no certificate in PEM ({_BEGIN})")
    try:
        der = base64.b64decode("".join(pem[begin + len(_BEGIN) : end].split()), validate=True)
    except binascii.Error as error:
        raise UnreadableCertificate(f"its base64 is invalid: {error}") from error
    # Certificate → TBSCertificate → version, serial number, signature, issuer, validity
    fields = _Values(_Values(_Values(der).take(_SEQUENCE)).take(_SEQUENCE))
    if fields.tag() == _VERSION:
        fields.take(_VERSION)
    fields.take(_INTEGER)
    fields.take(_SEQUENCE)
    fields.take(_SEQUENCE)
    validity = _Values(fields.take(_SEQUENCE))
    return validity.take_time(), validity.take_time()


class _Values:
    """The values of one DER structure, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def tag(self) -> int:
        if self._position >= len(self._data):
            raise UnreadableCertificate("it ends too early")
        return self._data[self._position]

    def take(self, tag: int) -> bytes:
        """Return the next value, which must have ``tag``."""
        if self.tag() != tag:
            raise UnreadableCertificate(f"tag {tag:#04x} expected, found {self.tag():#04x}")
        start = self._position + 2
        length = self._data[start - 1] if start <= len(self._data) else len(self._data)
        if length >= _LONG_LENGTH:
            count = length - _LONG_LENGTH
            if count > _LENGTH_BYTES_MAX:
                raise UnreadableCertificate(f"a length of {count} bytes")
            length = int.from_bytes(self._data[start : start + count], "big")
            start += count
        value = self._data[start : start + length]
        if len(value) < length:
            raise UnreadableCertificate("it ends too early")
        self._position = start + length
        return value

    def take_time(self) -> datetime:
        tag = self.tag()
        if tag not in (_UTC_TIME, _GENERALIZED_TIME):
            raise UnreadableCertificate(f"tag {tag:#04x} is not a time")
        text = self.take(tag).decode("ascii", "replace")
        if tag == _UTC_TIME:
            # RFC 5280: two digits from 50 are of the last century.
            text = ("19" if text[:2] >= "50" else "20") + text
        try:
            return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
        except ValueError as error:
            raise UnreadableCertificate(f"{text!r} is not a time") from error
