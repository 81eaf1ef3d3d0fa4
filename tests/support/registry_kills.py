"""Clients that register schemas while brokers are killed, and what must hold of the ids that they were answered."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
from stele.broker_process import BrokerProcess

from tests.support.waiting import eventually

CLIENTS = 16
_SHARED_TEXTS, _SHARED_SUBJECTS = 60, 8
# One of so many schemas is the client's own, and deleted for good.
_DELETED = 6


def text_of(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]})


@dataclass(slots=True)
class Ledger:
    """What was answered: subject, schema and id of each registration, and the ids of what was deleted for good."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    registered: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    deleted: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    @property
    def count(self) -> int:
        with self.lock:
            return len(self.registered) + len(self.deleted)


class Client:
    """One client of all brokers, each request at another one, until it is answered."""

    def __init__(self, brokers: Sequence[BrokerProcess], ledger: Ledger, number: int, seed: int) -> None:
        self._brokers = brokers
        self._ledger = ledger
        self._number = number
        self._random = random.Random(f"{seed}-{number}")
        self.stopping = threading.Event()

    def run(self) -> None:
        count = 0
        with httpx.Client(timeout=30) as http:
            while not self.stopping.is_set():
                count += 1
                if self._random.randrange(_DELETED):
                    subject = f"subject-{self._random.randrange(_SHARED_SUBJECTS)}"
                    text = text_of(f"Shared{self._random.randrange(_SHARED_TEXTS)}")
                    self._register(http, subject, text)
                else:
                    self._register_and_delete(http, f"own-{self._number}-{count}")

    def _register(self, http: httpx.Client, subject: str, text: str) -> None:
        answer = self._answer(http, "POST", f"/subjects/{subject}/versions", {"schema": text})
        if answer is not None:
            assert answer.status_code == 200, answer.text
            with self._ledger.lock:
                self._ledger.registered.append((subject, text, answer.json()["id"]))

    def _register_and_delete(self, http: httpx.Client, name: str) -> None:
        text = text_of(name.replace("-", "_"))
        answer = self._answer(http, "POST", f"/subjects/{name}/versions", {"schema": text})
        if answer is None:
            return
        assert answer.status_code == 200, answer.text
        for query in ("", "?permanent=true"):
            deletion = self._answer(http, "DELETE", f"/subjects/{name}{query}")
            if deletion is None:
                return
            # A deletion whose answer was lost with the broker has taken place.
            assert deletion.status_code in (200, 404), deletion.text
        with self._ledger.lock:
            self._ledger.deleted.append((text, answer.json()["id"]))

    def _answer(self, http: httpx.Client, method: str, path: str, body: Any = None) -> httpx.Response | None:
        """Return the first answer of a broker that is not about its own trouble; None if there is no time left."""
        while not self.stopping.is_set():
            broker = self._random.choice(self._brokers)
            try:
                answer = http.request(method, broker.registry_url + path, json=body)
            except httpx.TransportError:
                self.stopping.wait(0.05)
                continue
            if answer.status_code < 500:
                return answer
        return None


def register_and_kill(brokers: Sequence[BrokerProcess], kills: int, answers: int, seed: int) -> None:
    """Let clients register while brokers are killed, each time after so many ``answers``, and check all of them."""
    httpx.put(f"{brokers[0].registry_url}/config", json={"compatibility": "NONE"}).raise_for_status()
    ledger, chosen = Ledger(), random.Random(seed)
    clients = [Client(brokers, ledger, number, seed) for number in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(client.run) for client in clients]
        try:
            for _ in range(kills):
                wanted = ledger.count + answers
                eventually(
                    lambda wanted=wanted: ledger.count >= wanted or any(r.done() for r in running),
                    f"{answers} more answers",
                )
                killed = chosen.choice(brokers)
                killed.kill()
                killed.start()
        finally:
            for client in clients:
                client.stopping.set()
        for ended in running:
            ended.result()
    for broker in brokers:
        check(broker.registry_url, ledger)
        broker.kill()
    for broker in brokers:
        broker.start()
    check(chosen.choice(brokers).registry_url, ledger)


def check(url: str, ledger: Ledger) -> None:
    """Check that nothing answered is lost, that no id has two schemas, and no schema two ids."""
    texts: dict[int, str] = {}
    ids: dict[str, int] = {}
    for text, schema_id in [*((text, number) for _, text, number in ledger.registered), *ledger.deleted]:
        assert texts.setdefault(schema_id, text) == text, f"id {schema_id} has two schemas"
        assert ids.setdefault(text, schema_id) == schema_id, (
            f"a schema has the ids {ids[text]} and {schema_id}"
        )
    with httpx.Client(base_url=url, timeout=30) as http:
        for subject, text, schema_id in set(ledger.registered):
            found = http.post(f"/subjects/{subject}", json={"schema": text})
            assert found.status_code == 200, (subject, schema_id, found.text)
            assert found.json()["id"] == schema_id
            stored = http.get(f"/schemas/ids/{schema_id}").json()["schema"]
            assert json.loads(stored)["name"] == json.loads(text)["name"]
        for _, schema_id in ledger.deleted:
            assert http.get(f"/schemas/ids/{schema_id}").status_code == 404
        for subject in {subject for subject, *_ in ledger.registered}:
            versions = http.get(f"/subjects/{subject}/versions").json()
            assert versions == list(range(1, len(versions) + 1))
