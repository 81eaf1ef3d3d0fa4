"""Names of certificates as text, compared with `cryptography`."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from app.security.tls.distinguished_name import Subject, distinguished_name

OIDS = {
    "commonName": NameOID.COMMON_NAME,
    "countryName": NameOID.COUNTRY_NAME,
    "domainComponent": NameOID.DOMAIN_COMPONENT,
    "localityName": NameOID.LOCALITY_NAME,
    "organizationName": NameOID.ORGANIZATION_NAME,
    "organizationalUnitName": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "stateOrProvinceName": NameOID.STATE_OR_PROVINCE_NAME,
    "streetAddress": NameOID.STREET_ADDRESS,
    "userId": NameOID.USER_ID,
}


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (
            ((("countryName", "DE"),), (("organizationName", "Example"),), (("commonName", "orders"),)),
            "CN=orders,O=Example,C=DE",
        ),
        ((tuple((name, "a1") for name in OIDS if name != "countryName"),), None),
        (((("commonName", "a,OU=Admin"),),), "CN=a\\,OU=Admin"),
        (((("commonName", ' #"+<>;\\ '),),), '\\ #\\"\\+\\<\\>\\;\\\\\\ '.join(("CN=", ""))),
        (((("commonName", "#1"),),), "CN=\\#1"),
        (((("commonName", " "),),), "CN=\\ "),
        (((("commonName", "Größe"),),), "CN=Größe"),
        (((("emailAddress", "a@b"),),), "emailAddress=a@b"),
        ((), ""),
    ],
)
def test_a_name_is_written_as_rfc_4514_has_it(subject: Subject, text: str | None) -> None:
    written = distinguished_name(subject)
    if text is not None:
        assert written == text
    if all(name in OIDS for relative in subject for name, _ in relative):
        names = [
            x509.RelativeDistinguishedName(x509.NameAttribute(OIDS[name], value) for name, value in relative)
            for relative in subject
        ]
        expected = x509.Name(names).rfc4514_string()
        # The order inside a name of several attributes is free.
        assert sorted(written.split("+")) == sorted(expected.split("+"))


def test_no_value_can_look_like_another_attribute_or_line() -> None:
    first = distinguished_name(((("commonName", "a"),), (("organizationName", "b"),)))
    assert distinguished_name(((("organizationName", "b,CN=a"),),)) not in (first, "O=b,CN=a")
    assert "\n" not in distinguished_name(((("commonName", "a\nb\x00"),),))
