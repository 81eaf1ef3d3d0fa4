"""Write the subject of a certificate as text: RFC 4514, which Kafka's mapping rules match."""

from __future__ import annotations

# The short names of RFC 4514, section 3. OpenSSL's long names stand for all other attributes.
_SHORT_NAMES = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED = frozenset('"+,;<>\\')

# As ``ssl.SSLSocket.getpeercert()["subject"]``: relative names, each with one or more attributes.
Subject = tuple[tuple[tuple[str, str], ...], ...]


def distinguished_name(subject: Subject) -> str:
    """Return ``CN=orders,OU=Sales,O=Example``: the most specific name first, as RFC 4514 has it."""
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(subject)
    )


def _escaped(value: str) -> str:
    """Escape a value, so that no value can look like further attributes."""
    text = "".join(
        f"\\{c}" if c in _ESCAPED else f"\\{ord(c):02X}" if ord(c) < ord(" ") or ord(c) == 0x7F else c
        for c in value
    )
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    if text.endswith(" ") and text != "\\ ":
        text = f"{text[:-1]}\\ "
    return text
