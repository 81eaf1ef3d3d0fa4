"""The URL of a bucket as the configuration of Iceberg, for the process that writes tables and for clients of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl


def bucket_properties(warehouse: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return how a bucket is reached, by the names of Iceberg's configuration, without credentials; none of a directory.

    ``region`` has a default for any other than Amazon's: without one, pyiceberg asks Amazon for that of the bucket.
    """
    place, _, query = warehouse.partition("?")
    if not place.startswith("s3://"):
        return {}
    given = dict(parse_qsl(query))
    endpoint = given.get("endpoint") or environment.get("AWS_ENDPOINT_URL")
    region = given.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    found: Mapping[str, str | None] = {
        "s3.endpoint": endpoint,
        "client.region": region or ("us-east-1" if endpoint else None),
        "s3.path-style-access": given.get("path_style") or ("true" if endpoint else None),
    }
    return {name: value for name, value in found.items() if value}
