"""Kafka's command-line tools answer the same against Stele and against Apache Kafka, but for what is accepted."""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

from load.apache_kafka import VERSION, KafkaUnavailable
from tests.conformance.clients import TOOLS as CHOICE
from tests.conformance.kafka_tools import page
from tests.conformance.kafka_tools.accepted import ACCEPTED, Accepted
from tests.conformance.kafka_tools.calls import TOOLS, Call, steps
from tests.conformance.kafka_tools.comparison import Answer, as_lines, compare, normalize, run_both
from tests.conformance.kafka_tools.shell import Output, need_jdk
from tests.conformance.programs import RecordProperty

CALL = Call("topics", ("--describe", "--topic", "orders"))


def answer(*lines: str) -> list[Answer]:
    return [Answer(CALL, lines)]


@pytest.mark.program(CHOICE)
def test_every_call_against_stele_and_apache_kafka(record_property: RecordProperty) -> None:
    wanted = os.environ.get("STELE_CONFORMANCE_CLIENTS") or ""
    if wanted != "all" and CHOICE not in wanted.split(","):
        pytest.skip(f"{CHOICE} are not chosen: make conformance CLIENTS={CHOICE}")
    try:
        need_jdk()
        record_property("version", VERSION)
        kafka, stele = run_both(steps())
    except KafkaUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))

    differences, needed = compare(kafka, stele, ACCEPTED)

    report = "\n".join(map(str, differences))
    assert not differences, f"{len(differences)} calls differ; - is Kafka's line, + Stele's:\n{report}"
    unneeded = [one.what for one in ACCEPTED if not one.is_occasional and one not in needed]
    assert unneeded == [], "accepted, and no longer a difference"


def test_the_page_shows_the_calls_and_the_accepted_differences() -> None:
    assert page.section(page.PAGE.read_text()) == page.render(), (
        "python -m tests.conformance.kafka_tools --page writes it"
    )


def test_every_accepted_difference_is_of_some_call_and_has_a_reason() -> None:
    texts = [step.text for step in steps() if isinstance(step, Call)]
    for one in ACCEPTED:
        assert any(one.covers(text) for text in texts), one
        assert one.reason.endswith("."), one
        assert one.mask or one.kafka or one.stele, one
    assert [what for what, count in Counter(one.what for one in ACCEPTED).items() if count > 1] == []


def test_every_call_is_of_a_known_tool() -> None:
    assert {step.tool for step in steps() if isinstance(step, Call)} == set(TOOLS)


def test_what_differs_between_any_two_runs_is_left_out() -> None:
    lines = as_lines(
        Output(
            1,
            "Topic: orders\tTopicId: rWk5DPIiQsOUKc3bMO0CCg\tPartitionCount: 1\n"
            '{"brokers":[{"broker":0,"logDirs":[{"logDir":"/tmp/x/data","partitions":['
            '{"partition":"b-0","size":2},{"partition":"a-0","size":1}]}]}]}\n',
            "[2026-11-22 06:00:00,123] WARN to 127.0.0.1:9092 (org.apache.kafka)\n\tat org.Main.main(Main.java:1)\n",
        ),
        [("127.0.0.1:9092", "BOOTSTRAP")],
    )
    assert lines == (
        "out: Topic: orders TopicId: TOPIC-ID PartitionCount: 1",
        "out: .brokers.broker 0",
        'out: .brokers.logDirs.logDir "DIRECTORY"',
        'out: .brokers.logDirs.partitions {"partition": "a-0", "size": SIZE}',
        'out: .brokers.logDirs.partitions {"partition": "b-0", "size": SIZE}',
        "err: [TIME] WARN to BOOTSTRAP (org.apache.kafka)",
        "exit code 1",
    )
    assert normalize("{0} is no JSON", ()) == ["{0} is no JSON"]


def test_a_difference_is_the_lines_that_only_one_of_the_two_has() -> None:
    (difference,), _ = compare(answer("same", "theirs", "exit code 1"), answer("same", "ours", "exit code 0"))
    assert difference.kafka == ("theirs", "exit code 1")
    assert difference.stele == ("ours", "exit code 0")
    assert compare(answer("same"), answer("same")) == ([], set())


def test_an_accepted_line_is_accepted_of_its_broker_and_in_its_calls_only() -> None:
    accepted = Accepted(what="a line", reason="It is.", calls="^kafka-topics --describe", kafka="their.*")

    assert compare(answer("theirs"), answer(), [accepted]) == ([], {accepted})
    assert compare(answer(), answer("theirs"), [accepted])[0]
    assert compare(answer("theirs", "more"), answer(), [accepted])[0]
    elsewhere = Accepted(what="a line", reason="It is.", calls="^kafka-acls", kafka="their.*")
    assert compare(answer("theirs"), answer(), [elsewhere])[0]


def test_a_mask_hides_what_it_names_and_nothing_else() -> None:
    accepted = Accepted(what="a sentence", reason="It is.", mask="(SomeException: ).*")

    same = compare(answer("SomeException: their words"), answer("SomeException: our words"), [accepted])
    assert same == ([], {accepted})
    assert compare(answer("SomeException: words"), answer("OtherException: words"), [accepted])[0]


def test_the_sentence_of_an_error_may_be_another_and_its_code_may_not() -> None:
    def refused(exception: str, sentence: str) -> list[Answer]:
        return answer(f"err: org.apache.kafka.common.errors.{exception}: {sentence}", "exit code 1")

    theirs = refused("TopicExistsException", "Topic 'orders' already exists.")
    assert compare(theirs, refused("TopicExistsException", "topic 'orders' exists"), ACCEPTED)[0] == []
    assert compare(theirs, refused("InvalidTopicException", "topic 'orders' exists"), ACCEPTED)[0]


def test_the_patterns_are_regular_expressions() -> None:
    for one in ACCEPTED:
        for pattern in (one.calls, one.mask, one.kafka, one.stele):
            re.compile(pattern or "")
