"""Where the broker, the catalog and the files of the tables are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..wire.bucket_url import bucket_properties
from .errors import IcebergError

CATALOG_NAME = "stele"
_POSTGRES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """``catalog`` is a path of SQLite or a URL of PostgreSQL, ``warehouse`` a directory or ``s3://BUCKET/PREFIX``."""

    broker: str
    catalog: str
    warehouse: str

    @property
    def warehouse_url(self) -> str:
        """The URL under which all tables are, without parameters and without a slash at the end."""
        if "://" not in self.warehouse:
            return f"file://{Path(self.warehouse).absolute()}"
        return self.warehouse.partition("?")[0].rstrip("/")

    def catalog_properties(self) -> dict[str, str]:
        """Return what pyiceberg's ``SqlCatalog`` takes.

        Raises:
            IcebergError: the warehouse is neither a directory nor a bucket of S3.
        """
        url = urlsplit(self.warehouse_url)
        if url.scheme not in ("file", "s3"):
            raise IcebergError(
                f"the warehouse is at {url.scheme}://, where tables cannot be written; set STELE_ICEBERG_WAREHOUSE to a "
                "directory or to s3://BUCKET/PREFIX?endpoint=URL"
            )
        properties = {
            "type": "sql",
            "uri": _database_url(self.catalog),
            "warehouse": self.warehouse_url,
            "py-io-impl": "stele.iceberg.files.SyncedFileIO",
            "pool_pre_ping": "true",
        }
        return properties | bucket_properties(self.warehouse, os.environ)


def _database_url(catalog: str) -> str:
    if catalog.startswith(_POSTGRES):
        return _postgres_url(catalog)
    if "://" in catalog:
        return catalog
    path = Path(catalog).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"


def _postgres_url(url: str) -> str:
    """Return the URL of a server, or of several, as SQLAlchemy has it; the schema is that of the brokers."""
    from psycopg.conninfo import conninfo_to_dict
    from sqlalchemy import URL

    given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
    hosts, ports = given.pop("host", "localhost").split(","), given.pop("port", "5432").split(",")
    places = [f"{host}:{ports[number % len(ports)] or 5432}" for number, host in enumerate(hosts)]
    user, password, database = (given.pop(name, None) for name in ("user", "password", "dbname"))
    options = f"-c search_path=stele {given.pop('options', '')}".strip()
    # A single one twice, because SQLAlchemy takes a list for hosts with ports, and a path only in one.
    query = {**given, "options": options, "host": places if len(places) > 1 else places * 2}
    made = URL.create("postgresql+psycopg", username=user, password=password, database=database, query=query)
    return made.render_as_string(hide_password=False)
