"""The binary protocol against a real broker, byte for byte, with nothing but sockets.

The bytes of ADR-0009 stand here in hex: they are fixed, and no codec of ours is
between them and the broker.
"""

from __future__ import annotations

import resource
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode

from tests.support.batches import batch_of
from tests.support.binary_peer import (
    FLUSH,
    FLUSHED,
    Peer,
    consume_frame,
    decode,
    error_text,
    framed,
    produce_frame,
    produced_offset,
    sized,
)


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[Peer]:
    with Peer(broker) as peer:
        yield peer


def hx(text: str) -> bytes:
    return bytes.fromhex(text)


# ── ADR-0009: the six messages ──


def test_the_six_messages_have_the_bytes_of_adr_0009(peer: Peer) -> None:
    conversation = [
        # PRODUCE "hello" into "orders" → offset 0; an empty record → offset 1
        (
            "00 00 00 18 03 00 00 00 06 6f 72 64 65 72 73 00 00 00 05 68 65 6c 6c 6f",
            "00 00 00 0e 04 01 00 00 00 00 00 00 00 00",
        ),
        (
            "00 00 00 13 03 00 00 00 06 6f 72 64 65 72 73 00 00 00 00",
            "00 00 00 0e 04 01 00 00 00 00 00 00 00 01",
        ),
        # FLUSH
        ("00 00 00 05 05", "00 00 00 06 06 01"),
        # CONSUME from 0, at most 10 → both, next offset 2
        (
            "00 00 00 1b 01 00 00 00 06 6f 72 64 65 72 73 00 00 00 00 00 00 00 00 00 00 00 0a",
            "00 00 00 2f 02 01 00 00 00 00 00 00 00 02 00 00 00 02"
            "00 00 00 05 00 00 00 00 00 00 00 00 68 65 6c 6c 6f"
            "00 00 00 00 00 00 00 00 00 00 00 01",
        ),
        # … at most 1 → the first, next offset 1
        (
            "00 00 00 1b 01 00 00 00 06 6f 72 64 65 72 73 00 00 00 00 00 00 00 00 00 00 00 01",
            "00 00 00 23 02 01 00 00 00 00 00 00 00 01 00 00 00 01"
            "00 00 00 05 00 00 00 00 00 00 00 00 68 65 6c 6c 6f",
        ),
        # … from 1 → the second
        (
            "00 00 00 1b 01 00 00 00 06 6f 72 64 65 72 73 00 00 00 00 00 00 00 01 7f ff ff ff",
            "00 00 00 1e 02 01 00 00 00 00 00 00 00 02 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 01",
        ),
        # … at the log end: a success without messages, next offset = offset
        (
            "00 00 00 1b 01 00 00 00 06 6f 72 64 65 72 73 00 00 00 00 00 00 00 02 00 00 00 0a",
            "00 00 00 12 02 01 00 00 00 00 00 00 00 02 00 00 00 00",
        ),
    ]
    for asked, answered in conversation:
        assert peer.ask(hx(asked)) == hx(answered)


def test_a_topic_name_and_its_data_may_be_any_utf_8_and_any_bytes(peer: Peer) -> None:
    data = bytes(range(256)) * 40
    assert produced_offset(peer.ask(produce_frame("any.bytes_-9", data))) == 0
    answer = peer.ask(consume_frame("any.bytes_-9", 0, 1))
    assert answer == framed(2, hx("01 0000000000000001 00000001") + struct.pack(">iq", len(data), 0) + data)


# What is wrong with a request is answered with its own response type, and the connection lives.
REFUSED_REQUESTS = {
    "produce without a body": ("00 00 00 05 03", 4, "topic length needs 4 bytes and 0 are left"),
    "produce, topic cut short": ("00 00 00 0b 03 00 00 00 06 6f 72", 4, "topic needs 6 bytes and 2 are left"),
    "produce, no data length": ("00 00 00 0b 03 00 00 00 02 72 31", 4, "data length needs 4 bytes"),
    "produce, data cut short": (
        "00 00 00 10 03 00 00 00 02 72 31 00 00 00 02 61",
        4,
        "data needs 2 bytes and 1 are left",
    ),
    "produce, a byte too many": (
        "00 00 00 11 03 00 00 00 02 72 31 00 00 00 01 61 62",
        4,
        "1 bytes trail the message",
    ),
    "produce, topic not UTF-8": (
        "00 00 00 10 03 00 00 00 02 c3 28 00 00 00 01 61",
        4,
        "topic is not valid UTF-8",
    ),
    "produce, negative topic length": (
        "00 00 00 0e 03 ff ff ff ff 00 00 00 01 61",
        4,
        "topic length is negative",
    ),
    "produce, negative data length": (
        "00 00 00 0f 03 00 00 00 02 72 31 ff ff ff ff",
        4,
        "data length is negative",
    ),
    "produce, least data length": ("00 00 00 0f 03 00 00 00 02 72 31 80 00 00 00", 4, "negative"),
    "produce, greatest data length": (
        "00 00 00 0f 03 00 00 00 02 72 31 7f ff ff ff",
        4,
        "data needs 2147483647",
    ),
    "produce, empty topic": ("00 00 00 0e 03 00 00 00 00 00 00 00 01 61", 4, "it is empty"),
    "produce, topic with a slash": (
        "00 00 00 11 03 00 00 00 03 61 2f 62 00 00 00 01 61",
        4,
        "it may have letters, digits",
    ),
    "produce, topic of two dots": ("00 00 00 10 03 00 00 00 02 2e 2e 00 00 00 01 61", 4, "are directories"),
    "consume without a body": ("00 00 00 05 01", 2, "topic length needs 4 bytes"),
    "consume, no batch size": (
        "00 00 00 13 01 00 00 00 02 72 31 00 00 00 00 00 00 00 00",
        2,
        "batch size needs 4 bytes and 0 are left",
    ),
    "consume, offset cut short": ("00 00 00 0f 01 00 00 00 02 72 31 00 00 00 00", 2, "offset needs 8 bytes"),
    "consume, a byte too many": (
        "00 00 00 18 01 00 00 00 02 72 31 00 00 00 00 00 00 00 00 00 00 00 01 00",
        2,
        "1 bytes trail the message",
    ),
    "consume, topic not UTF-8": (
        "00 00 00 17 01 00 00 00 02 ff fe 00 00 00 00 00 00 00 00 00 00 00 01",
        2,
        "topic is not valid UTF-8",
    ),
    "consume, negative topic length": (
        "00 00 00 15 01 ff ff ff fe 00 00 00 00 00 00 00 00 00 00 00 01",
        2,
        "negative",
    ),
    "consume, unknown topic": (
        "00 00 00 17 01 00 00 00 02 6e 6f 00 00 00 00 00 00 00 00 00 00 00 01",
        2,
        "topic 'no' does not exist",
    ),
    "consume, batch size 0": (
        "00 00 00 17 01 00 00 00 02 72 30 00 00 00 00 00 00 00 00 00 00 00 00",
        2,
        "batch size is 0; ask for at least one message",
    ),
    "consume, batch size -1": (
        "00 00 00 17 01 00 00 00 02 72 30 00 00 00 00 00 00 00 00 ff ff ff ff",
        2,
        "batch size is -1",
    ),
    "consume, offset -1": (
        "00 00 00 17 01 00 00 00 02 72 30 ff ff ff ff ff ff ff ff 00 00 00 01",
        2,
        "offset -1 of r0-0 is out of range: the log has 0 to 1",
    ),
    "consume, offset behind the end": (
        "00 00 00 17 01 00 00 00 02 72 30 00 00 00 00 00 00 00 02 00 00 00 01",
        2,
        "offset 2 of r0-0 is out of range: the log has 0 to 1",
    ),
    "consume, least offset": (
        "00 00 00 17 01 00 00 00 02 72 30 80 00 00 00 00 00 00 00 00 00 00 01",
        2,
        "out of range",
    ),
    "consume, greatest offset": (
        "00 00 00 17 01 00 00 00 02 72 30 7f ff ff ff ff ff ff ff 00 00 00 01",
        2,
        "out of range",
    ),
    "flush, a byte too many": ("00 00 00 06 05 00", 6, "1 bytes trail the message"),
    "type 00": ("00 00 00 05 00", 0, "frame type 0x00 is not a request"),
    "type 02, a response": ("00 00 00 05 02", 0, "frame type 0x02 is not a request"),
    "type 04 with a body": ("00 00 00 07 04 01 02", 0, "frame type 0x04 is not a request"),
    "type 53, the first unassigned": ("00 00 00 05 53", 0, "frame type 0x53 is not a request"),
    "type ff": ("00 00 00 06 ff 00", 0, "frame type 0xff is not a request"),
}


@pytest.mark.parametrize(("asked", "response_type", "text"), REFUSED_REQUESTS.values(), ids=REFUSED_REQUESTS)
def test_a_wrong_request_is_answered_by_its_own_type_and_the_connection_lives(
    peer: Peer, asked: str, response_type: int, text: str
) -> None:
    if "72 30" in asked:
        peer.ask(produce_frame("r0", b"x"))
        # Whichever of these tests came first made the topic; its log has one record for each of them.
        text = text.replace("0 to 1", "0 to ")
        if "offset behind" in text or "offset 2 " in text:
            asked = asked.replace("00 00 00 00 00 00 00 02", "00 00 00 00 00 0f 00 00")
            text = "out of range"
    assert text in error_text(peer.ask(hx(asked)), response_type)
    assert peer.ask(FLUSH) == FLUSHED


REFUSED_LENGTHS = {
    "0": "00 00 00 00",
    "1": "00 00 00 01",
    "4": "00 00 00 04",
    "4, and a type": "00 00 00 04 05",
    "one above the limit": "01 00 00 01 05",
    "2³¹ - 1": "7f ff ff ff 03",
    "-1 to those who read it signed": "ff ff ff ff",
    "least to those who read it signed": "80 00 00 00 03 00 00 00 06",
}


@pytest.mark.parametrize("sent", REFUSED_LENGTHS.values(), ids=REFUSED_LENGTHS)
def test_a_length_no_frame_has_is_answered_by_type_00_and_the_connection_closed(
    peer: Peer, sent: str
) -> None:
    peer.send(hx(sent))
    length = int.from_bytes(hx(sent)[:4], "big")
    assert f"frame length is {length}" in error_text(peer.frame(), 0)
    assert peer.rest() == b""


def test_requests_before_an_invalid_length_are_answered_and_those_after_it_are_not(peer: Peer) -> None:
    peer.send(produce_frame("before", b"a"), FLUSH, hx("00 00 00 00"), produce_frame("before", b"b"))
    assert produced_offset(peer.frame()) == 0
    assert peer.frame() == FLUSHED
    assert "frame length is 0" in error_text(peer.frame(), 0)
    assert peer.rest() == b""


def test_the_largest_frame_is_taken(broker: BrokerProcess, peer: Peer) -> None:
    # 16 MiB: well formed, but too much for one record.
    topic = "largest"
    assert produced_offset(peer.ask(produce_frame(topic, b"x"))) == 0
    data = bytes(16 * 1024 * 1024 - 5 - 8 - len(topic))
    frame = produce_frame(topic, data)
    assert frame[:4] == hx("01 00 00 00")
    text = error_text(peer.ask(frame), 4)
    assert text.startswith(f"a record of {len(data)} bytes exceeds the limit of 1048588")
    assert produced_offset(peer.ask(produce_frame(topic, b"y"))) == 1


def test_a_record_of_about_max_message_bytes_is_stored_and_one_above_refused(peer: Peer) -> None:
    assert produced_offset(peer.ask(produce_frame("large", bytes(1_048_588 - 61 - 32)))) == 0
    assert "exceeds the limit of" in error_text(peer.ask(produce_frame("large", bytes(1_048_588))), 4)
    answer = peer.ask(consume_frame("large", 0, 10))
    assert answer[5:18] == hx("01 0000000000000001 00000001")
    assert len(answer) == 18 + 12 + 1_048_588 - 61 - 32


def test_a_consume_has_at_most_about_four_mebibytes_and_can_be_continued(peer: Peer) -> None:
    data = bytes(1_000_000)
    peer.send(*(produce_frame("much", data) for _ in range(10)))
    assert [produced_offset(frame) for frame in peer.frames(10)] == list(range(10))
    offsets: list[int] = []
    offset = 0
    while offset < 10:
        answer = decode(peer.ask(consume_frame("much", offset, 1000)))
        assert isinstance(answer, m.ConsumeResponse)
        assert 1 <= len(answer.messages) <= 5
        offsets += [found for found, _ in answer.messages]
        offset = answer.next_offset
    assert offsets == list(range(10))


# ── auto-creation ──


def test_a_produce_creates_its_topic_and_a_consume_never_does(peer: Peer) -> None:
    assert "does not exist" in error_text(peer.ask(consume_frame("made-by-produce", 0, 1)), 2)
    assert produced_offset(peer.ask(produce_frame("made-by-produce", b"x"))) == 0
    assert peer.ask(consume_frame("made-by-produce", 0, 1))[5] == 1


def test_without_auto_creation_a_produce_to_an_unknown_topic_is_an_error_and_makes_nothing() -> None:
    with run_broker(environment={"STELE_AUTO_CREATE_TOPICS_ENABLE": "false"}) as broker, Peer(broker) as peer:
        for _ in range(2):
            assert "topic 'nope' does not exist" in error_text(peer.ask(produce_frame("nope", b"x")), 4)
        asked = m.ProduceBatchRequest(topic="nope", partition=0, acks=1, batches=batch_of([b"x"]))
        assert code_of(peer.call(asked)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        listed = peer.call(m.MetadataRequest(topics=["nope"], auto_create=True))
        assert isinstance(listed, m.MetadataResponse)
        assert [topic.code for topic in listed.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert peer.ask(FLUSH) == FLUSHED
        assert peer.call(m.MetadataRequest(topics=None)) == m.MetadataResponse(
            cluster_id=listed.cluster_id, brokers=listed.brokers, topics=[]
        )


def test_a_topic_that_many_connections_create_at_once_is_created_once(broker: BrokerProcess) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(broker)) for _ in range(30)]
        for peer in peers:
            peer.send(produce_frame("raced", b"x"))
        assert sorted(produced_offset(peer.frame()) for peer in peers) == list(range(30))


def test_peers_that_vanish_while_their_topic_is_being_created_leave_a_topic_that_works(
    broker: BrokerProcess,
) -> None:
    topics = [f"vanished-{number}" for number in range(40)]
    for number, topic in enumerate(topics):
        asked = [
            produce_frame(topic, b"x"),
            m.CreateTopicRequest(topic=topic, partitions=2).encode(),
            m.MetadataRequest(topics=[topic], auto_create=True).encode(),
            m.ProduceBatchRequest(topic=topic, partition=0, acks=-1, batches=batch_of([b"x"])).encode(),
        ]
        peer = Peer(broker)
        peer.send(asked[number % 4])
        peer.reset()
    with Peer(broker) as witness:
        for topic in topics:
            produced_offset(witness.ask(produce_frame(topic, b"y")))


# ── pipelining ──


def pipelined(topic: str) -> tuple[list[bytes], list[bytes]]:
    """Requests of every kind that depend on each other, and the heads of their answers."""
    batch = bytes(batch_of([b"c", b"d"]))
    asked = [
        # A consume is answered from what is there when it begins, and no sync has ended by then.
        m.CreateTopicRequest(topic=topic, partitions=2, configs=[("stele.visibility", "appended")]).encode(),
        produce_frame(topic, b"a"),
        produce_frame(topic, b"b"),
        FLUSH,
        consume_frame(topic, 0, 10),
        hx("00 00 00 05 7e"),
        m.ProduceBatchRequest(topic=topic, partition=0, acks=-1, batches=batch).encode(),
        m.ProduceBatchRequest(topic=topic, partition=1, acks=1, batches=batch).encode(),
        consume_frame(topic, 2, 10),
        consume_frame(topic, 4, 10),
        produce_frame(topic, b"e"),
        m.ListOffsetsRequest(topic=topic, partition=0, timestamp_ms=-1).encode(),
        produce_frame(f"{topic}.made", b"f"),
        m.MetadataRequest(topics=[f"{topic}.made"]).encode(),
        m.AlterTopicRequest(topic=topic, partitions=3).encode(),
        m.ProduceBatchRequest(topic=topic, partition=2, acks=0, batches=batch).encode(),
        m.FlushTopicRequest(topic=topic).encode(),
        m.DeleteTopicRequest(topic=topic).encode(),
        consume_frame(topic, 0, 10),
        produce_frame(topic, b"g"),
        consume_frame(topic, 0, 10),
    ]
    heads = [
        hx("10 01"),
        hx("04 01 0000000000000000"),
        hx("04 01 0000000000000001"),
        hx("06 01"),
        hx("02 01 0000000000000002 00000002 00000001 0000000000000000 61 00000001 0000000000000001 62"),
        hx("00 00"),
        hx("0a 01 00000000 0000000000000002 0000000000000003 ffffffffffffffff 0000000000000000 02"),
        hx("0a 01 00000001 0000000000000000 0000000000000001 ffffffffffffffff 0000000000000000 01"),
        hx("02 01 0000000000000004 00000002 00000001 0000000000000002 63 00000001 0000000000000003 64"),
        hx("02 01 0000000000000004 00000000"),
        hx("04 01 0000000000000004"),
        hx("0e 01 0000000000000005 ffffffffffffffff 00000000"),
        hx("04 01 0000000000000000"),
        hx("08 01"),
        hx("16 01"),
        hx("0a 01 00000002 ffffffffffffffff ffffffffffffffff ffffffffffffffff 0000000000000000 00"),
        hx("1a 01"),
        hx("12 01"),
        hx("02 00"),
        hx("04 01 0000000000000000"),
        hx("02 01 0000000000000001 00000001 00000001 0000000000000000 67"),
    ]
    assert len(asked) == len(heads)
    return asked, heads


@pytest.mark.parametrize("piece_bytes", [1 << 20, 997, 64, 7, 3, 1])
def test_pipelined_requests_take_effect_and_are_answered_in_order_in_whatever_pieces_they_come(
    peer: Peer, piece_bytes: int
) -> None:
    asked, heads = pipelined(f"pipelined-{piece_bytes}")
    stream = b"".join(asked)
    for start in range(0, len(stream), piece_bytes):
        peer.send(stream[start : start + piece_bytes])
    answers = peer.frames(len(heads))
    assert [answer[4 : 4 + len(head)] for answer, head in zip(answers, heads, strict=True)] == heads


def test_a_half_open_peer_gets_every_answer_and_then_the_end(peer: Peer) -> None:
    asked, heads = pipelined("half-open")
    peer.send(*asked)
    peer.end()
    assert [frame[4] for frame in peer.frames(len(heads))] == [head[0] for head in heads]
    assert peer.rest() == b""


def test_a_connection_serves_endless_requests(peer: Peer) -> None:
    topic, round_size, rounds = "endless", 2000, 50
    data = b"x" * 100
    for number in range(rounds):
        peer.send(*(produce_frame(topic, data) for _ in range(round_size)))
        first = number * round_size
        assert [produced_offset(frame) for frame in peer.frames(round_size)] == list(
            range(first, first + round_size)
        )
    offset = 0
    while offset < round_size * rounds:
        answer = decode(peer.ask(consume_frame(topic, offset, 10_000)))
        assert isinstance(answer, m.ConsumeResponse)
        assert answer.messages == [(offset + index, data) for index in range(len(answer.messages))]
        offset = answer.next_offset


def test_one_connection_works_while_a_thousand_say_nothing() -> None:
    idle = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < idle + 200:
        pytest.skip(f"this needs {idle + 200} file handles, and the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, idle + 200), hard))
    with run_broker(environment={"STELE_CONNECTIONS_MAX": str(idle + 1)}) as broker, ExitStack() as stack:
        peers = [stack.enter_context(Peer(broker)) for _ in range(idle)]
        # Half of them stop in the middle of a frame.
        for silent in peers[::2]:
            silent.send(produce_frame("never", b"x")[:9])
        with Peer(broker) as worker:
            for number in range(200):
                assert produced_offset(worker.ask(produce_frame("busy", b"x"))) == number
            assert worker.ask(FLUSH) == FLUSHED
            with Peer(broker) as refused:
                assert "too many connections" in error_text(refused.frame(), 0)
                assert refused.rest() == b""
        for silent in peers[1::2]:
            assert silent.ask(FLUSH) == FLUSHED


def test_peers_that_disconnect_within_a_frame_do_not_affect_others(broker: BrokerProcess, peer: Peer) -> None:
    frame = produce_frame("survives", b"x" * 50)
    for cut in range(1, len(frame)):
        vanishing = Peer(broker)
        vanishing.send(frame[:cut])
        if cut % 2:
            vanishing.reset()
        else:
            vanishing.close()
    assert produced_offset(peer.ask(frame)) == 0
    assert peer.ask(consume_frame("survives", 0, 10))[5:18] == hx("01 0000000000000001 00000001")


# ── ADR-0010 ──


def code_of(answer: m.Response | m.ErrorResponse) -> ErrorCode:
    assert isinstance(answer, m.ErrorResponse), answer
    return answer.code


def test_the_messages_of_the_extension_have_their_bytes(peer: Peer) -> None:
    # One record, key "k", value "v", as docs/formats/binary-protocol.md has it.
    batch_tail = (
        "02 a7 5e 02 9d 00 00 00 00 00 00 00 00 01 9a a2 91 c0 00 00 00 01 9a a2 91 c0 00 ff ff ff ff ff"
        "ff ff ff ff ff ff ff ff ff 00 00 00 01 10 00 00 00 02 6b 02 76 00"
    )
    conversation = [
        # CREATE_TOPIC "wired", default partitions, no configs
        ("00 00 00 16 0f 00 00 00 05 77 69 72 65 64 ff ff ff ff 00 00 00 00", None),
        # PRODUCE_BATCH acks=all → offsets 0 to 0, synced
        (
            "00 00 00 61 09 00 00 00 05 77 69 72 65 64 00 00 00 00 ff 00 00 75 30 00 00 00 46"
            "00 00 00 00 00 00 00 00 00 00 00 3a ff ff ff ff" + batch_tail,
            "00 00 00 2b 0a 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"
            "ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 00 02",
        ),
        # FETCH from 0 → the batch verbatim but for base offset and leader epoch
        (
            "00 00 00 2e 0b 00 00 00 00 00 00 00 01 00 80 00 00 00 00 00 01 00 00 00 05 77 69 72 65 64"
            "00 00 00 00 00 00 00 00 00 00 00 00 00 10 00 00",
            "00 00 00 77 0c 01 00 00 00 01 00 00 00 05 77 69 72 65 64 00 00 00 00 00 00 00 00 00 00"
            "00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 46"
            "00 00 00 00 00 00 00 00 00 00 00 3a 00 00 00 00" + batch_tail,
        ),
        # LIST_OFFSETS latest, earliest, and by time
        (
            "00 00 00 1a 0d 00 00 00 05 77 69 72 65 64 00 00 00 00 ff ff ff ff ff ff ff ff",
            "00 00 00 1a 0e 01 00 00 00 00 00 00 00 01 ff ff ff ff ff ff ff ff 00 00 00 00",
        ),
        (
            "00 00 00 1a 0d 00 00 00 05 77 69 72 65 64 00 00 00 00 ff ff ff ff ff ff ff fe",
            "00 00 00 1a 0e 01 00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff 00 00 00 00",
        ),
        (
            "00 00 00 1a 0d 00 00 00 05 77 69 72 65 64 00 00 00 00 00 00 01 9a a2 91 c0 00",
            "00 00 00 1a 0e 01 00 00 00 00 00 00 00 00 00 00 01 9a a2 91 c0 00 00 00 00 00",
        ),
        (
            "00 00 00 1a 0d 00 00 00 05 77 69 72 65 64 00 00 00 00 00 00 01 9a a2 91 c0 01",
            "00 00 00 1a 0e 01 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 00",
        ),
        # FLUSH_TOPIC, DELETE_TOPIC
        ("00 00 00 0e 19 00 00 00 05 77 69 72 65 64", "00 00 00 06 1a 01"),
        ("00 00 00 0e 11 00 00 00 05 77 69 72 65 64", "00 00 00 06 12 01"),
        # … and once more: code 3, UNKNOWN_TOPIC_OR_PARTITION
        ("00 00 00 0e 11 00 00 00 05 77 69 72 65 64", None),
    ]
    answers = [peer.ask(hx(asked)) for asked, _ in conversation]
    for answer, (_, expected) in zip(answers, conversation, strict=True):
        if expected is not None:
            assert answer == hx(expected)
    created, gone = answers[0], answers[-1]
    assert (created[:6], created[22:]) == (hx("00 00 00 1e 10 01"), hx("00 00 00 01 00 00 00 00"))
    text = b"topic 'wired' does not exist; create it, or produce to it"
    assert gone == framed(0x12, hx("00 00 03") + sized(text))


def test_metadata_names_the_broker_and_describes_what_was_asked_for(
    broker: BrokerProcess, peer: Peer
) -> None:
    peer.call(m.CreateTopicRequest(topic="described", partitions=3))
    answer = peer.call(m.MetadataRequest(topics=["described", "unknown-to-it", "not a name"]))
    assert isinstance(answer, m.MetadataResponse)
    assert answer.brokers == [m.BrokerEndpoint(id=1, host=broker.host, port=broker.binary_port)]
    assert answer.cluster_id
    described, unknown, impossible = answer.topics
    assert (described.topic, described.code) == ("described", ErrorCode.NONE)
    assert [p.partition for p in described.partitions] == [0, 1, 2]
    assert described.topic_id != bytes(16)
    assert (unknown.code, unknown.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert impossible.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    every = peer.call(m.MetadataRequest(topics=None))
    assert isinstance(every, m.MetadataResponse)
    assert described in every.topics
    names = [topic.topic for topic in every.topics]
    assert names == sorted(names)


def test_metadata_creates_topics_only_when_asked_to(peer: Peer) -> None:
    for auto_create, code in ((False, 3), (True, 0), (False, 0)):
        answer = peer.call(m.MetadataRequest(topics=["made-by-metadata"], auto_create=auto_create))
        assert isinstance(answer, m.MetadataResponse)
        assert [topic.code for topic in answer.topics] == [code]


def test_topic_administration_shows_what_was_set_and_what_is_in_effect(peer: Peer) -> None:
    topic = "administered"
    configs = (("retention.ms", "1000"), ("segment.bytes", "1048576"))
    created = peer.call(m.CreateTopicRequest(topic=topic, partitions=2, configs=configs))
    assert isinstance(created, m.CreateTopicResponse)
    assert (created.partitions, dict(created.configs)) == (2, dict(configs))
    described = peer.call(m.DescribeTopicRequest(topic=topic))
    assert isinstance(described, m.DescribeTopicResponse)
    assert described.topic_id == created.topic_id
    assert dict(described.configs)["retention.ms"] == "1000"
    assert dict(described.configs)["max.message.bytes"] == "1048588"
    altered = peer.call(m.AlterTopicRequest(topic=topic, partitions=4, configs=(("retention.ms", None),)))
    assert isinstance(altered, m.AlterTopicResponse)
    assert (altered.partitions, dict(altered.configs)["retention.ms"]) == (4, "604800000")
    assert dict(altered.configs)["segment.bytes"] == "1048576"
    assert peer.call(m.DescribeTopicRequest(topic=topic)) == m.DescribeTopicResponse(
        topic_id=altered.topic_id, partitions=4, configs=altered.configs
    )
    assert peer.call(m.DeleteTopicRequest(topic=topic)) == m.DeleteTopicResponse()
    assert code_of(peer.call(m.DescribeTopicRequest(topic=topic))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def batch_request(topic: str, batches: bytes | bytearray, partition: int = 0, acks: int = 1) -> m.Request:
    return m.ProduceBatchRequest(topic=topic, partition=partition, acks=acks, batches=batches)


def corrupted() -> bytearray:
    batch = batch_of([b"x"])
    batch[-1] ^= 1
    return batch


# The topic "codes" has two partitions and one record of producer 5, epoch 1 in partition 1.
REFUSED_CALLS: dict[str, tuple[m.Request, ErrorCode]] = {
    "create what is there": (m.CreateTopicRequest(topic="codes"), ErrorCode.TOPIC_ALREADY_EXISTS),
    "create without a name": (m.CreateTopicRequest(topic=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "create a long name": (m.CreateTopicRequest(topic="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "create no partitions": (m.CreateTopicRequest(topic="c1", partitions=0), ErrorCode.INVALID_PARTITIONS),
    "create too many": (m.CreateTopicRequest(topic="c1", partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
    "create with an unknown config": (
        m.CreateTopicRequest(topic="c1", configs=(("no.such", "1"),)),
        ErrorCode.INVALID_CONFIG,
    ),
    "create with a wrong value": (
        m.CreateTopicRequest(topic="c1", configs=(("retention.ms", "long"),)),
        ErrorCode.INVALID_CONFIG,
    ),
    "delete an unknown topic": (m.DeleteTopicRequest(topic="nix"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "delete an impossible one": (m.DeleteTopicRequest(topic="/"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "describe an unknown topic": (m.DescribeTopicRequest(topic="nix"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "alter an unknown topic": (m.AlterTopicRequest(topic="nix"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "alter to fewer partitions": (
        m.AlterTopicRequest(topic="codes", partitions=1),
        ErrorCode.INVALID_PARTITIONS,
    ),
    "alter an unknown config": (
        m.AlterTopicRequest(topic="codes", configs=(("no.such", None),)),
        ErrorCode.INVALID_CONFIG,
    ),
    "flush an unknown topic": (m.FlushTopicRequest(topic="nix"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "list offsets of an unknown topic": (
        m.ListOffsetsRequest(topic="nix", partition=0, timestamp_ms=-1),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "list offsets of an unknown partition": (
        m.ListOffsetsRequest(topic="codes", partition=2, timestamp_ms=-1),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "list offsets of partition -1": (
        m.ListOffsetsRequest(topic="codes", partition=-1, timestamp_ms=-1),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "list offsets at time -3": (
        m.ListOffsetsRequest(topic="codes", partition=0, timestamp_ms=-3),
        ErrorCode.INVALID_REQUEST,
    ),
    "ten thousand topics and one": (
        m.MetadataRequest(topics=["t"] * 10_001),
        ErrorCode.INVALID_REQUEST,
    ),
    "produce to an unknown partition": (
        batch_request("codes", batch_of([b"x"]), partition=2),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "produce to partition -2": (
        batch_request("codes", batch_of([b"x"]), partition=-2),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "produce to an impossible topic": (
        batch_request("a b", batch_of([b"x"])),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "produce with acks 2": (
        batch_request("codes", batch_of([b"x"]), acks=2),
        ErrorCode.INVALID_REQUIRED_ACKS,
    ),
    "produce nothing": (batch_request("codes", b""), ErrorCode.INVALID_RECORD),
    "produce no batch": (batch_request("codes", bytes(100)), ErrorCode.INVALID_RECORD),
    "produce a corrupt batch": (batch_request("codes", corrupted()), ErrorCode.INVALID_RECORD),
    "produce a batch cut short": (batch_request("codes", batch_of([b"x"])[:-1]), ErrorCode.INVALID_RECORD),
    "produce a batch and a byte": (batch_request("codes", batch_of([b"x"]) + b"x"), ErrorCode.INVALID_RECORD),
    "produce a large batch": (
        batch_request("codes", batch_of([bytes(1_048_588)])),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "a sequence out of order": (
        batch_request(
            "codes", batch_of([b"x"], producer_id=5, producer_epoch=1, base_sequence=9), partition=1
        ),
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ),
    "an older epoch": (
        batch_request("codes", batch_of([b"x"], producer_id=5, producer_epoch=0), partition=1),
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ),
    "two idempotent batches at once": (
        batch_request(
            "codes",
            batch_of([b"x"], producer_id=7) + batch_of([b"y"], producer_id=7, base_sequence=1),
            partition=1,
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "a key of a topic that is not compacted": (
        m.LookUpKeyRequest(topic="codes", key=b"k"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "a key of partition -2": (
        m.LookUpKeyRequest(topic="codes", partition=-2, key=b"k"),
        ErrorCode.INVALID_REQUEST,
    ),
    "a key of an unknown topic": (
        m.LookUpKeyRequest(topic="nobody", key=b"k"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "the table of a topic that is not compacted": (
        m.TableFetchRequest(topic="codes", partition=0),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    "the table of an unknown partition": (
        m.TableFetchRequest(topic="codes", partition=2),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "a table from a negative offset": (
        m.TableFetchRequest(topic="codes", partition=0, offset=-1),
        ErrorCode.INVALID_REQUEST,
    ),
}


@pytest.mark.parametrize(("request_", "code"), REFUSED_CALLS.values(), ids=REFUSED_CALLS)
def test_a_refused_call_has_code_and_text_and_the_connection_stays_open(
    peer: Peer, request_: m.Request, code: ErrorCode
) -> None:
    peer.call(m.CreateTopicRequest(topic="codes", partitions=2))
    peer.call(batch_request("codes", batch_of([b"x"], producer_id=5, producer_epoch=1), partition=1))
    answer = peer.call(request_)
    assert isinstance(answer, m.ErrorResponse)
    assert (answer.response_type, answer.code) == (request_.TYPE + 1, code)
    assert answer.message
    assert peer.ask(FLUSH) == FLUSHED


@pytest.mark.parametrize("frame_type", range(0x07, 0x1B, 2))
def test_a_malformed_call_of_the_extension_is_an_invalid_request_and_the_connection_lives(
    peer: Peer, frame_type: int
) -> None:
    for body in (b"\x00", b"\xff" * 40, sized(b"\xff\xfe") + bytes(60), bytes(4096)):
        answer = decode(peer.ask(framed(frame_type, body)))
        assert isinstance(answer, m.ErrorResponse)
        assert (answer.response_type, answer.code) == (frame_type + 1, ErrorCode.INVALID_REQUEST)
    assert peer.ask(FLUSH) == FLUSHED


@pytest.mark.parametrize(
    ("acks", "durability", "base_offset", "last_offset"),
    [
        (0, m.Durability.NONE, -1, -1),
        (1, m.Durability.APPENDED, 0, 1),
        (m.ACKS_ALL, m.Durability.SYNCED, 0, 1),
    ],
)
def test_a_receipt_has_the_durability_of_its_acks(
    peer: Peer, acks: int, durability: m.Durability, base_offset: int, last_offset: int
) -> None:
    topic = f"acks.{acks + 1}"
    answer = peer.call(batch_request(topic, batch_of([b"a", b"b"]), acks=acks))
    assert answer == m.ProduceBatchResponse(
        partition=0,
        base_offset=base_offset,
        last_offset=last_offset,
        log_append_time_ms=-1,
        log_start_offset=0,
        durability=durability,
    )
    assert peer.ask(consume_frame(topic, 0, 10))[5:18] == hx("01 0000000000000002 00000002")


def test_several_batches_of_one_request_are_stored_in_order(peer: Peer) -> None:
    batches = batch_of([b"a", b"b"]) + batch_of([b"c"]) + batch_of([b"d", b"e", b"f"])
    answer = peer.call(batch_request("several", batches, acks=m.ACKS_ALL))
    assert isinstance(answer, m.ProduceBatchResponse)
    assert (answer.base_offset, answer.last_offset) == (0, 5)
    consumed = decode(peer.ask(consume_frame("several", 0, 10)))
    assert consumed == m.ConsumeResponse(
        next_offset=6, messages=list(enumerate([b"a", b"b", b"c", b"d", b"e", b"f"]))
    )


def test_a_produce_to_any_partition_takes_them_in_turn(peer: Peer) -> None:
    peer.call(m.CreateTopicRequest(topic="in-turn", partitions=3))
    partitions: list[int] = []
    for _ in range(9):
        answer = peer.call(batch_request("in-turn", batch_of([b"x"]), partition=m.ANY_PARTITION))
        assert isinstance(answer, m.ProduceBatchResponse)
        partitions.append(answer.partition)
    assert sorted(partitions) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_fetch_answers_each_partition_in_order_including_errors(peer: Peer) -> None:
    peer.call(m.CreateTopicRequest(topic="fetched", partitions=2))
    peer.call(batch_request("fetched", batch_of([b"a"]), partition=1))
    answer = peer.call(
        m.FetchRequest(
            partitions=[
                m.FetchPartition(topic="fetched", partition=1, offset=0),
                m.FetchPartition(topic="nowhere", partition=0, offset=0),
                m.FetchPartition(topic="fetched", partition=0, offset=0),
                m.FetchPartition(topic="fetched", partition=2, offset=0),
                m.FetchPartition(topic="fetched", partition=1, offset=2),
                m.FetchPartition(topic="fetched", partition=1, offset=-1),
                m.FetchPartition(topic="a/b", partition=0, offset=0),
            ]
        )
    )
    assert isinstance(answer, m.FetchResponse)
    assert [(p.topic, p.partition, p.code, bool(p.message), bool(p.batches)) for p in answer.partitions] == [
        ("fetched", 1, ErrorCode.NONE, False, True),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, False),
        ("fetched", 0, ErrorCode.NONE, False, False),
        ("fetched", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, False),
        ("fetched", 1, ErrorCode.OFFSET_OUT_OF_RANGE, True, False),
        ("fetched", 1, ErrorCode.OFFSET_OUT_OF_RANGE, True, False),
        ("a/b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, True, False),
    ]
    (record,) = rb.decode_records(answer.partitions[0].batches)
    assert (record.offset, record.value) == (0, b"a")
    out_of_range = answer.partitions[4]
    assert (out_of_range.high_watermark, out_of_range.log_start_offset) == (1, 0)


def test_a_fetch_serves_one_batch_even_if_it_is_larger_than_asked_for(peer: Peer) -> None:
    for number in range(3):
        peer.call(batch_request("larger", batch_of([bytes([number]) * 5000])))
    answer = peer.call(
        m.FetchRequest(
            partitions=[m.FetchPartition(topic="larger", partition=0, offset=1, max_bytes=1)], max_bytes=1
        )
    )
    assert isinstance(answer, m.FetchResponse)
    assert [header.base_offset for header in rb.iter_headers(answer.partitions[0].batches)] == [1]


def test_a_long_poll_is_woken_by_a_produce_on_another_connection(broker: BrokerProcess, peer: Peer) -> None:
    peer.call(m.CreateTopicRequest(topic="awaited", partitions=2))
    partitions = [m.FetchPartition(topic="awaited", partition=p, offset=0) for p in (0, 1)]
    with Peer(broker) as waiting:
        # The record behind the poll shows that it is waiting: its answer stands behind the poll's.
        waiting.send(
            m.FetchRequest(partitions=partitions, max_wait_ms=60_000).encode(),
            produce_frame("awaited.begun", b"x"),
        )
        while peer.ask(consume_frame("awaited.begun", 0, 1))[5] != 1:
            pass
        peer.call(batch_request("awaited", batch_of([b"news"]), partition=1))
        answer = decode(waiting.frame())
        assert isinstance(answer, m.FetchResponse)
        first, second = answer.partitions
        assert first.batches == b""
        assert [record.value for record in rb.decode_records(second.batches)] == [b"news"]
        assert produced_offset(waiting.frame()) == 0


def test_a_long_poll_ends_at_once_when_its_topic_is_deleted(broker: BrokerProcess, peer: Peer) -> None:
    peer.call(m.CreateTopicRequest(topic="doomed"))
    with Peer(broker) as waiting:
        waiting.send(
            m.FetchRequest(
                partitions=[m.FetchPartition(topic="doomed", partition=0, offset=0)], max_wait_ms=60_000
            ).encode(),
            produce_frame("doomed.begun", b"x"),
        )
        while peer.ask(consume_frame("doomed.begun", 0, 1))[5] != 1:
            pass
        peer.call(m.DeleteTopicRequest(topic="doomed"))
        answer = decode(waiting.frame())
        assert isinstance(answer, m.FetchResponse)
        assert answer.partitions[0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_may_wait_answers_empty_when_its_time_is_over(peer: Peer) -> None:
    peer.call(m.CreateTopicRequest(topic="silent"))
    answer = peer.call(
        m.FetchRequest(
            partitions=[m.FetchPartition(topic="silent", partition=0, offset=0)],
            max_wait_ms=20,
            min_bytes=100,
        )
    )
    assert isinstance(answer, m.FetchResponse)
    assert (answer.partitions[0].code, answer.partitions[0].batches) == (ErrorCode.NONE, b"")


# ── idempotence ──


def test_producer_ids_are_never_given_twice_not_even_over_restarts(tmp_path: Path) -> None:
    given: list[int] = []
    with run_broker(tmp_path / "data") as broker:
        for end in (broker.stop, broker.kill, broker.stop):
            with Peer(broker) as peer:
                for _ in range(3):
                    answer = peer.call(m.InitProducerIdRequest())
                    assert isinstance(answer, m.InitProducerIdResponse)
                    assert answer.producer_epoch == 0
                    given.append(answer.producer_id)
            end()
            broker.start()
    assert len(set(given)) == len(given) == 9


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_retry_gets_the_offsets_of_the_first_time_also_after_a_restart(tmp_path: Path, end: str) -> None:
    def batch(sequence: int, epoch: int = 0) -> m.Request:
        values = [f"{sequence}".encode(), f"{sequence + 1}".encode()]
        return batch_request(
            "once",
            batch_of(values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence),
            acks=m.ACKS_ALL if sequence % 4 else 1,
        )

    with run_broker(tmp_path / "data") as broker:
        with Peer(broker) as peer:
            given = peer.call(m.InitProducerIdRequest())
            assert isinstance(given, m.InitProducerIdResponse)
            producer_id = given.producer_id
            first = [peer.call(batch(sequence)) for sequence in range(0, 16, 2)]
            assert [a.base_offset for a in first if isinstance(a, m.ProduceBatchResponse)] == list(
                range(0, 16, 2)
            )
            assert [peer.call(batch(sequence)) for sequence in range(6, 16, 2)] == first[3:]
        broker.stop() if end == "stop" else broker.kill()
        broker.start()
        with Peer(broker) as peer:
            # The last five are remembered with their offsets, those before as stored.
            assert [peer.call(batch(sequence)) for sequence in range(6, 16, 2)] == first[3:]
            assert code_of(peer.call(batch(0))) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            assert code_of(peer.call(batch(18))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            newer = peer.call(batch(0, epoch=1))
            assert isinstance(newer, m.ProduceBatchResponse)
            assert newer.base_offset == 16
            assert code_of(peer.call(batch(16))) is ErrorCode.INVALID_PRODUCER_EPOCH
            consumed = decode(peer.ask(consume_frame("once", 0, 100)))
            assert isinstance(consumed, m.ConsumeResponse)
            values = [*(str(number).encode() for number in range(16)), b"0", b"1"]
            assert consumed.messages == list(enumerate(values))
