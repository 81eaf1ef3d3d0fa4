"""The validity of certificates, compared with `cryptography`."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import example, given
from hypothesis import strategies as st

from app.security.tls.certificate import UnreadableCertificate, validity_of
from tests.support.certificates import Authority


@pytest.mark.parametrize(
    "not_after", [datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC), datetime(2077, 1, 1, tzinfo=UTC)]
)
def test_the_validity_is_the_one_that_cryptography_reads(tmp_path: Path, not_after: datetime) -> None:
    pair = Authority(tmp_path).issue(
        "server", "localhost", not_before=datetime(1999, 12, 31, 23, 59, 58, tzinfo=UTC), not_after=not_after
    )
    expected = x509.load_pem_x509_certificate(pair.certificate_file.read_bytes())
    assert validity_of(pair.pem) == (expected.not_valid_before_utc, expected.not_valid_after_utc)
    assert validity_of(pair.pem)[1] == not_after


def pem_of(der: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(der).decode()}\n-----END CERTIFICATE-----\n"


@given(st.binary(max_size=64))
@example(b"\x30\x84\xff\xff\xff\xff")
@example(b"\x30\x89" + b"\xff" * 9)
@example(b"\x30")
def test_other_bytes_are_refused(der: bytes) -> None:
    with pytest.raises(UnreadableCertificate):
        validity_of(pem_of(der))


def test_a_certificate_that_is_cut_anywhere_is_refused_or_keeps_its_validity(tmp_path: Path) -> None:
    pem = Authority(tmp_path).server().pem
    der = base64.b64decode("".join(pem.split("-----")[2].split()))
    for size in range(len(der)):
        with pytest.raises(UnreadableCertificate):
            validity_of(pem_of(der[:size]))


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----", "no certificate", pem_of(b"")[:40]])
def test_a_text_without_a_certificate_is_refused(text: str) -> None:
    with pytest.raises(UnreadableCertificate, match="no certificate"):
        validity_of(text)
