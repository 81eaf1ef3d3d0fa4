"""What a mirror may be told, and that it is known after a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.broker.mirrors import MIRRORS_MAX, MirrorDefinition
from app.errors import InvalidRequest, UnknownMirror
from tests.unit.broker.test_broker_produce import broker_at

PROD = MirrorDefinition(
    name="prod",
    servers="kafka-1:9092, [::1]:9093",
    topics=r"orders\..*",
    groups=".*",
    acls=True,
    source={"sasl.password": "${env:STELE_MIRROR_SECRET_PROD}", "ssl.key.password": "${file:key}"},
    rate_bytes_s=1 << 20,
    is_paused=True,
)


async def test_definitions_outlast_a_restart(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, _):
        await broker.mirrors.put(PROD)
        await broker.mirrors.put(replace(PROD, name="other"))
        await broker.mirrors.delete("other")
        with pytest.raises(UnknownMirror):
            await broker.mirrors.delete("other")
    async with broker_at(tmp_path) as (broker, _):
        # What lies in the same table is read without them.
        assert broker.topics() == []
        await broker.mirrors.open()
        assert broker.mirrors.all() == [PROD]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "a/b"}, "cannot be the name"),
        ({"name": ""}, "cannot be the name"),
        ({"servers": "kafka"}, "no HOST:PORT"),
        ({"servers": "kafka:99999"}, "no HOST:PORT"),
        ({"servers": ",".join(["k:1"] * 51)}, "are enough"),
        ({"topics": ""}, "1 to 1000 characters"),
        ({"topics": "("}, "no regular expression"),
        ({"groups": "x" * 1001}, "1 to 1000 characters"),
        ({"source": {"sasl.password": "secret"}}, "is a secret, which is not stored"),
        ({"source": {"ssl.truststore.Password": "secret"}}, "is a secret, which is not stored"),
        ({"source": {"sasl.password": "${env:AWS_SECRET_ACCESS_KEY}"}}, "STELE_MIRROR_SECRET_"),
        ({"source": {"sasl.username": "${file:../../etc/shadow}"}}, "STELE_MIRROR_SECRETS_DIR"),
        ({"source": {"client.id": "a${env:STELE_MIRROR_SECRET_A}"}}, "or wholly"),
        ({"source": {f"p{n}": "" for n in range(51)}}, "more than 50"),
        ({"source": {"p": "x" * 4001}}, "too long"),
        ({"rate_bytes_s": 10}, "1024 or more"),
        ({"is_outward": True}, "access rules and quotas"),
        ({"offsets": "others"}, "equal or translate"),
        ({"offsets": "translate"}, "always have equal offsets"),
    ],
)
async def test_what_no_mirror_can_be_is_refused(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    async with broker_at(tmp_path) as (broker, _):
        await broker.mirrors.put(PROD)
        with pytest.raises(InvalidRequest, match=reason) as refused:
            await broker.mirrors.put(replace(PROD, **changed))
        assert "secret" not in str(refused.value).replace("is a secret", "")
        assert broker.mirrors.all() == [PROD]


async def test_the_number_of_mirrors_is_bounded(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as (broker, _):
        for number in range(MIRRORS_MAX):
            await broker.mirrors.put(replace(PROD, name=f"m{number}"))
        with pytest.raises(InvalidRequest, match="limit"):
            await broker.mirrors.put(PROD)
        # Those that are there may change.
        await broker.mirrors.put(replace(PROD, name="m0", is_paused=False))
