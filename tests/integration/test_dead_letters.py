"""Dead letters of share groups over every protocol, their configuration, their crash, and their way back (KIP-1191)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import InvalidRequestError

from tests.support.kafka_peer import KafkaPeer
from tests.support.share_groups import REJECT, Member, configure
from tests.support.waiting import eventually
from tests.support.warm_processes import run_stele

_names = count(1)
_ENABLE = "errors.deadletterqueue.group.enable"
_TOPIC = "errors.deadletterqueue.topic.name"
_COPY = "errors.deadletterqueue.copy.record.enable"


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as http:
        yield http


class Bench:
    """A topic, its share group and the dead-letter topic of the group."""

    def __init__(self, http: httpx.Client, **configs: Any) -> None:
        number = next(_names)
        self.http = http
        self.topic, self.group, self.letters_topic = f"orders-{number}", f"packers-{number}", f"dlq.{number}"
        self.create(self.topic)
        if configs.pop("create", True):
            self.create(self.letters_topic, **{_ENABLE: True})
        self.configure({_TOPIC: self.letters_topic} | configs)

    def create(self, topic: str, **configs: Any) -> None:
        answer = self.http.put(f"/v1/topics/{topic}", json={"partitions": 2, "configs": configs})
        assert answer.status_code == 201, answer.text

    def require_schemas(self, topic: str) -> None:
        configs = {"stele.value.schema.validation": "id"}
        answer = self.http.patch(f"/v1/topics/{topic}", json={"configs": configs})
        assert answer.status_code == 200, answer.text

    def configure(self, configs: dict[str, Any]) -> dict[str, str]:
        answer = self.http.patch(f"/v1/groups/{self.group}/configs", json={"configs": configs})
        assert answer.status_code == 200, answer.text
        effective: dict[str, str] = answer.json()["effective_configs"]
        return effective

    def produce(self, *records: dict[str, Any]) -> None:
        answer = self.http.post(f"/v1/topics/{self.topic}/records", json={"records": records})
        assert answer.status_code in (200, 201), answer.text

    def call(self, action: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(f"/v1/groups/{self.group}/share/{action}", json=body)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def poll(self) -> dict[str, Any]:
        return self.call("poll", topics=[self.topic], **{"from": "earliest"})

    def records(self, topic: str) -> list[dict[str, Any]]:
        read: list[dict[str, Any]] = []
        for partition in (0, 1):
            answer = self.http.get(f"/v1/topics/{topic}/partitions/{partition}/records", params={"from": 0})
            assert answer.status_code == 200, answer.text
            read += answer.json()["records"]
        return read

    def letters(self, wanted: int) -> list[dict[str, Any]]:
        read: list[dict[str, Any]] = []

        def are_there() -> bool:
            read[:] = self.records(self.letters_topic)
            return len(read) >= wanted

        eventually(are_there, f"{wanted} dead letters")
        assert len(read) == wanted, read
        return read


def headers_of(record: dict[str, Any]) -> dict[str, str]:
    return {header["key"]: header["value"] for header in record["headers"]}


def metric(http: httpx.Client, name: str) -> float:
    (line,) = [line for line in http.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def test_a_rejected_record_gets_a_letter_that_says_where_it_is(http: httpx.Client) -> None:
    bench = Bench(http)
    bench.produce({"value": "good", "partition": 1}, {"key": "k", "value": "bad", "partition": 1})
    polled = bench.poll()
    bad = polled["records"][1]
    named = [{name: bad[name] for name in ("topic", "partition", "offset")}]
    bench.call("reject", lock=polled["lock"], records=named)
    (letter,) = bench.letters(1)
    assert (letter["partition"], letter["key"], letter["value"]) == (1, None, None)
    assert headers_of(letter) == {
        "__dlq.errors.topic": bench.topic,
        "__dlq.errors.partition": "1",
        "__dlq.errors.offset": "1",
        "__dlq.errors.group": bench.group,
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "rejected by a consumer",
    }
    bench.call("ack", lock=polled["lock"])


def test_a_letter_has_a_copy_of_its_record_if_the_group_wants_it(http: httpx.Client) -> None:
    bench = Bench(http, **{_COPY: True})
    bench.produce({"key": "k", "value": "bad", "headers": [{"key": "trace", "value": "7"}], "partition": 0})
    bench.call("reject", lock=bench.poll()["lock"])
    (letter,) = bench.letters(1)
    assert (letter["key"], letter["value"]) == ("k", "bad")
    assert headers_of(letter)["trace"] == "7"
    assert headers_of(letter)["__dlq.errors.offset"] == "0"


def test_a_record_that_was_delivered_too_often_gets_a_letter(http: httpx.Client) -> None:
    bench = Bench(http, **{"share.delivery.count.limit": 2})
    bench.produce({"value": "bad"})
    for deliveries in (1, 2):
        polled = bench.poll()
        assert [record["deliveries"] for record in polled["records"]] == [deliveries]
        bench.call("release", lock=polled["lock"])
    (letter,) = bench.letters(1)
    headers = headers_of(letter)
    assert headers["__dlq.errors.delivery.count"] == "2"
    assert headers["__dlq.errors.message"] == "delivered 2 times, which is the limit, and never accepted"
    assert bench.poll()["records"] == []


def test_a_member_of_the_kafka_protocol_rejects_records_into_letters(
    broker: BrokerProcess, http: httpx.Client
) -> None:
    bench = Bench(http)
    with KafkaPeer(broker) as peer:
        # Kafka's own way to the same configurations.
        configure(peer, bench.group, **{_TOPIC: bench.letters_topic, "share_auto_offset_reset": "earliest"})
        bench.produce(*({"value": str(number), "partition": 0} for number in range(10)))
        member = Member(peer, bench.group, bench.topic)
        member.beat()
        acquired = member.took(peer.call(member.fetch_request(), 1))
        assert acquired == {0: [(0, 9, 1)]}
        member.took(peer.call(member.fetch_request({0: [(3, 5, REJECT)]}), 1))
    letters = bench.letters(3)
    assert [headers_of(letter)["__dlq.errors.offset"] for letter in letters] == ["3", "4", "5"]


def test_letters_that_a_crash_interrupts_are_written_after_the_restart(tmp_path: Path) -> None:
    """The rejection is answered before the letter is there; the broker may be killed at any moment in between."""
    with run_broker(data_dir=tmp_path) as broker, httpx.Client(base_url=broker.http_url, timeout=60) as http:
        bench = Bench(http)
        bench.produce(*({"value": str(number), "partition": number % 2} for number in range(1000)))
        rejected = 0
        while records := (
            polled := bench.call("poll", topics=[bench.topic], max_records=300, **{"from": "earliest"})
        )["records"]:
            bench.call("reject", lock=polled["lock"])
            rejected += len(records)
            if rejected < 1000:
                broker.kill()
                broker.restart()
        assert rejected == 1000

        def all_are_there() -> bool:
            return len({place_of(letter) for letter in bench.records(bench.letters_topic)}) == 1000

        eventually(all_are_there, "a letter about each record")


def place_of(letter: dict[str, Any]) -> tuple[int, int]:
    headers = headers_of(letter)
    return int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"])


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        (None, "does not exist"),
        ({}, f"takes no dead letters; set {_ENABLE}=true"),
        ({_ENABLE: True, "cleanup.policy": "compact"}, "is compacted"),
    ],
    ids=["missing", "not enabled", "compacted"],
)
def test_a_topic_that_takes_no_letters_does_not_stop_the_group(
    http: httpx.Client, broker: BrokerProcess, configs: dict[str, Any] | None, reason: str
) -> None:
    bench = Bench(http, create=False)
    if configs is not None:
        bench.create(bench.letters_topic, **configs)
    lost = metric(http, "stele_share_group_dead_letters_lost_total")
    bench.produce(*({"value": "bad", "partition": 0} for _ in range(3)))
    bench.call("reject", lock=bench.poll()["lock"])

    def is_counted() -> bool:
        return metric(http, "stele_share_group_dead_letters_lost_total") == lost + 3

    eventually(is_counted, "the lost letters are counted")
    (partition, _) = http.get(f"/v1/groups/{bench.group}").json()["partitions"]
    assert partition["lag"] == 0
    warning = (
        f"share group '{bench.group}' gives records up without dead letters in topic '{bench.letters_topic}'"
    )
    assert broker.stderr.count(warning) == 1
    assert reason in broker.stderr


def test_a_dead_letter_topic_is_created_if_the_broker_may_do_that() -> None:
    with (
        run_broker(
            environment={
                "STELE_DEAD_LETTER_AUTO_CREATE_TOPICS_ENABLE": "true",
                "STELE_DEAD_LETTER_TOPIC_PREFIX": "dead.",
            }
        ) as broker,
        httpx.Client(base_url=broker.http_url, timeout=60) as http,
    ):
        bench = Bench(http, create=False, **{_TOPIC: "dead.letters"})
        bench.produce({"value": "bad"})
        bench.call("reject", lock=bench.poll()["lock"])

        def is_created() -> bool:
            answer = http.get("/v1/topics/dead.letters/partitions/0/records", params={"from": 0})
            return answer.status_code == 200 and len(answer.json()["records"]) == 1

        eventually(is_created, "the letter in a new topic")
        assert http.get("/v1/topics/dead.letters").json()["configs"] == {_ENABLE: "true"}


def test_a_record_of_the_largest_size_gets_a_letter_without_a_copy(http: httpx.Client) -> None:
    bench = Bench(http, **{_COPY: True})
    bench.produce({"value": "x" * 100_000, "partition": 0}, {"value": "small", "partition": 0})
    answer = http.patch(f"/v1/topics/{bench.letters_topic}", json={"configs": {"max.message.bytes": 50_000}})
    assert answer.status_code == 200
    bench.call("reject", lock=bench.poll()["lock"])
    assert [letter["value"] for letter in bench.letters(2)] == [None, "small"]


# ── configuration ──


def test_the_configurations_of_a_group_are_set_and_reset_over_http(http: httpx.Client) -> None:
    url = "/v1/groups/not%2Fyet/configs"
    defaults = http.get(url).json()
    assert defaults["configs"] == {}
    assert defaults["effective_configs"]["share.delivery.count.limit"] == "5"
    changed = http.patch(url, json={"configs": {"share.delivery.count.limit": 3, _COPY: True}}).json()
    assert changed["group"] == "not/yet"
    assert changed["configs"] == {"share.delivery.count.limit": "3", _COPY: "true"}
    reset = http.patch(url, json={"configs": {"share.delivery.count.limit": None}}).json()
    assert reset["configs"] == {_COPY: "true"}
    assert reset["effective_configs"] == defaults["effective_configs"] | {_COPY: "true"}


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({_TOPIC: "emails-dead"}, "it must begin with 'dlq.'"),
        ({_TOPIC: "__dlq.emails"}, "two underscores"),
        ({_TOPIC: "dlq.e mails"}, "the name of a topic"),
        ({"share.delivery.count.limit": 99}, "share.delivery.count.limit"),
        ({"no.such.config": 1}, "no.such.config"),
    ],
)
def test_a_wrong_configuration_of_a_group_is_refused(
    http: httpx.Client, configs: dict[str, Any], reason: str
) -> None:
    answer = http.patch("/v1/groups/g/configs", json={"configs": configs})
    assert answer.status_code == 400
    assert reason in answer.json()["detail"]
    assert http.get("/v1/groups/g/configs").json()["configs"] == {}


def test_a_copy_that_breaks_the_contract_of_the_letters_stays_where_it_is(http: httpx.Client) -> None:
    bench = Bench(http, **{_COPY: True})
    bench.require_schemas(bench.letters_topic)
    bench.produce({"key": "k", "value": "bad", "headers": [{"key": "trace", "value": "7"}], "partition": 0})
    bench.call("reject", lock=bench.poll()["lock"])
    (letter,) = bench.letters(1)
    assert (letter["key"], letter["value"]) == (None, None)
    assert headers_of(letter)["__dlq.errors.offset"] == "0"
    assert "trace" not in headers_of(letter)


# ── redrive ──


@pytest.mark.parametrize("is_copied", [False, True])
def test_redriven_records_are_in_their_partitions_again(http: httpx.Client, is_copied: bool) -> None:
    bench = Bench(http, **{_COPY: is_copied})
    bench.produce(
        {"key": "a", "value": "1", "headers": [{"key": "trace", "value": "7"}], "partition": 0},
        {"key": "b", "value": None, "partition": 1},
        {"key": "c", "value": "3", "partition": 1},
    )
    bench.call("reject", lock=bench.poll()["lock"])
    bench.letters(3)
    assert bench.call("redrive", max_records=2) == {
        "topic": bench.letters_topic,
        "redriven": 2,
        "lost": 0,
        "is_more": True,
    }
    assert bench.call("redrive") == {"topic": bench.letters_topic, "redriven": 1, "lost": 0, "is_more": False}
    assert bench.call("redrive")["redriven"] == 0
    polled = bench.poll()
    again = {
        (record["key"], record["value"], record["partition"], record["deliveries"])
        for record in polled["records"]
    }
    assert again == {("a", "1", 0, 1), ("b", None, 1, 1), ("c", "3", 1, 1)}
    assert [headers_of(record) for record in polled["records"] if record["key"] == "a"] == [{"trace": "7"}]


def test_a_record_that_breaks_the_contract_of_its_topic_is_lost(http: httpx.Client) -> None:
    bench = Bench(http, **{_COPY: True})
    bench.produce({"value": "bad", "partition": 0}, {"key": "k", "value": None, "partition": 0})
    bench.call("reject", lock=bench.poll()["lock"])
    bench.letters(2)
    bench.require_schemas(bench.topic)
    assert bench.call("redrive") == {"topic": bench.letters_topic, "redriven": 1, "lost": 1, "is_more": False}
    assert [record["value"] for record in bench.poll()["records"]] == [None]


def test_letters_of_other_groups_in_the_same_topic_stay_theirs(http: httpx.Client) -> None:
    bench, other = Bench(http), Bench(http, create=False)
    other.letters_topic = bench.letters_topic
    other.configure({_TOPIC: bench.letters_topic})
    for one in (bench, other):
        one.produce({"value": one.topic})
        one.call("reject", lock=one.poll()["lock"])
    bench.letters(2)
    assert bench.call("redrive")["redriven"] == 1
    assert other.call("redrive")["redriven"] == 1
    assert [record["value"] for record in other.poll()["records"]] == [other.topic]


def test_a_letter_whose_record_is_gone_is_counted_as_lost(http: httpx.Client) -> None:
    bench = Bench(http)
    bench.produce({"value": "bad", "partition": 0}, {"value": "bad", "partition": 0})
    bench.call("reject", lock=bench.poll()["lock"])
    bench.letters(2)
    answer = http.request("DELETE", f"/v1/topics/{bench.topic}/partitions/0/records", params={"before": 1})
    assert answer.status_code == 200, answer.text
    assert bench.call("redrive") == {"topic": bench.letters_topic, "redriven": 1, "lost": 1, "is_more": False}


def test_a_group_without_a_dead_letter_topic_is_not_redriven(
    broker: BrokerProcess, http: httpx.Client
) -> None:
    answer = http.post("/v1/groups/plain/share/redrive", json={})
    assert answer.status_code == 400
    assert f"has no dead-letter topic; set {_TOPIC}" in answer.json()["detail"]
    with (
        Client(broker.http_url) as client,
        client.queue("plain", "orders") as queue,
        pytest.raises(InvalidRequestError, match="no dead-letter topic"),
    ):
        queue.redrive()


def test_the_command_line_configures_and_redrives(broker: BrokerProcess, http: httpx.Client) -> None:
    bench = Bench(http)
    url = ("--url", broker.http_url)
    shown = run_stele(
        "groups",
        "configure",
        bench.group,
        "--config",
        f"{_COPY}=true",
        "--reset",
        "share.isolation.level",
        *url,
    )
    assert shown.returncode == 0, shown.stderr
    assert f"{_COPY}=true" in shown.stdout.decode()
    bench.produce(*({"value": "bad"} for _ in range(5)))
    bench.call("reject", lock=bench.poll()["lock"])
    bench.letters(5)
    done = run_stele("groups", "redrive", bench.group, *url)
    assert (done.returncode, done.stdout.decode()) == (0, f"{bench.group}: 5 records redriven, 0 lost\n")
    with Client(broker.http_url) as client, client.queue(bench.group, bench.topic) as queue:
        assert queue.redrive().redriven == 0
        assert len(queue.poll()) == 5
