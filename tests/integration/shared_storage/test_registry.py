"""The schema registry at several brokers: each answers by itself, and they agree."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.support.brokers import Brokers

BROKERS = 2

SUBJECTS = 12


def enum(name: str) -> dict[str, str]:
    return {"schema": json.dumps({"type": "enum", "name": name, "symbols": ["A"]})}


def register(url: str, subject: str, name: str) -> int:
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json=enum(name), timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def test_what_one_broker_has_answered_another_knows(brokers: Brokers) -> None:
    urls = [brokers[number].registry_url for number in (1, 2)]
    for number in range(SUBJECTS):
        here, there = urls if number % 2 else urls[::-1]
        subject = f"known-{number}"
        schema_id = register(here, subject, f"Known{number}")
        assert httpx.get(f"{there}/schemas/ids/{schema_id}").status_code == 200
        assert httpx.get(f"{there}/subjects/{subject}/versions").json() == [1]
        assert (
            httpx.post(f"{there}/subjects/{subject}", json=enum(f"Known{number}")).json()["id"] == schema_id
        )
        assert httpx.put(f"{there}/config/{subject}", json={"compatibility": "NONE"}).status_code == 200
        assert httpx.get(f"{here}/config/{subject}").json() == {"compatibilityLevel": "NONE"}
        assert httpx.delete(f"{there}/subjects/{subject}").json() == [1]
        assert httpx.get(f"{here}/subjects/{subject}/versions").json()["error_code"] == 40401


def test_registrations_at_both_at_once_have_one_id_per_schema(brokers: Brokers) -> None:
    """Half of the schemas are registered at both brokers, under the same subject and under others."""
    urls = [brokers[number].registry_url for number in (1, 2)]
    work = [
        (url, f"{side}-{number}" if number % 2 else f"both-{number}", f"Both{number // 2}")
        for number in range(SUBJECTS)
        for side, url in enumerate(urls)
    ]
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(register, *zip(*work, strict=True)))
    by_schema: dict[str, set[int]] = {}
    for (_, _, name), schema_id in zip(work, ids, strict=True):
        by_schema.setdefault(name, set()).add(schema_id)
    assert all(len(found) == 1 for found in by_schema.values()), by_schema
    assert len(set(ids)) == len(by_schema)
    answers = [httpx.get(f"{url}/schemas").json() for url in urls]
    assert answers[0] == answers[1]
