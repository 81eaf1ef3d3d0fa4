"""Certificates for tests, made when they are needed: a CA, a server, clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of one certificate with its chain, and of its key."""

    certificate_file: Path
    key_file: Path

    @property
    def pem(self) -> str:
        return self.certificate_file.read_text()


class Authority:
    """A CA whose files lie in ``directory``."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.ca_file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.ca_file))

    def issue(
        self,
        name: str,
        *hosts: str,
        common_name: str | None = None,
        organization: str | None = None,
        unit: str | None = None,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Pair:
        """Write the files ``name.pem`` and ``name.key``, over those of an earlier call."""
        issued = self._ca.issue_cert(
            *hosts,
            common_name=common_name,
            organization_name=organization,
            organization_unit_name=unit,
            not_before=not_before,
            not_after=not_after,
        )
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        pair.certificate_file.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(pair.key_file))
        return pair

    def server(self, name: str = "server") -> Pair:
        """A certificate for brokers on this machine."""
        return self.issue(name, "127.0.0.1", "localhost")

    def client(self, name: str, *, unit: str = "Service", organization: str = "Example") -> Pair:
        return self.issue(name, f"{name}@example.com", common_name=name, organization=organization, unit=unit)

    def client_context(self, client: Pair | None = None) -> ssl.SSLContext:
        """A context that trusts this CA alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.ca_file)
        if client is not None:
            context.load_cert_chain(client.certificate_file, client.key_file)
        return context
