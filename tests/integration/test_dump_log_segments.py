"""Apache Kafka's own tool reads the files of a Stele broker: every segment, every index, no complaint."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import stele
from confluent_kafka import Producer
from stele import Client, Compression, Consumer, NewRecord, Record
from stele.broker_process import BrokerProcess, run_broker
from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.storage.disk.files import RealFiles
from app.storage.topic_config import TopicConfig
from load.apache_kafka import libs, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.batches import ORDERS, spec_of
from tests.support.batches import batch_of as batch_of_values
from tests.support.compaction import DAY_MS, NOW_MS, RULES, CleanedPartition, Keyed, compacted
from tests.support.compaction import batch as batch_of
from tests.support.dumped_segments import COMPLAINTS, TOOL, complain_not
from tests.support.engines import open_engine
from tests.support.simulated_time import RealFilesInSimulatedTime, SimulatedClock, run_simulated

# Small enough for a dozen segments a partition, each with several index entries.
SMALL = {"segment.bytes": 4096, "index.interval.bytes": 512}
BASE_MS = 1_763_664_000_000

_FILE = re.compile(r"^Dumping (\S+)$")
_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* position: (\d+) .* size: (\d+) ")
_RECORD = re.compile(
    r"^\| offset: (\d+) (?:CreateTime|LogAppendTime): (\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r"sequence: (-?\d+) headerKeys: \[(.*?)\](?: key: (.*?))?(?: payload: (.*))?$"
)
_OFFSET_ENTRY = re.compile(r"^offset: (\d+) position: (\d+)$")
_TIME_ENTRY = re.compile(r"^timestamp: (\d+) offset: (\d+)$")


@dataclass(frozen=True)
class Stored:
    """What the broker said it has, and its files after it has stopped."""

    data_dir: Path
    records: dict[str, list[Record[bytes]]]

    @property
    def files(self) -> list[Path]:
        return sorted(path for suffix in ("log", "index", "timeindex") for path in self.logs(suffix))

    def logs(self, suffix: str = "log") -> list[Path]:
        """Of the topics' partitions, oldest segment first."""
        return [
            path
            for name in sorted(self.records)
            for path in sorted((self.data_dir / name).glob(f"*.{suffix}"))
        ]


@pytest.fixture(scope="module")
def tool() -> None:
    with kafka_or_skip():
        libs()


@pytest.fixture(scope="module")
def stored(tool: None, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    with run_broker(tmp_path_factory.mktemp("dump") / "data") as broker:
        write(broker)
        records = read_all(broker)
        data_dir = broker.data_dir
    # Stopped: now the active segments have their indexes on disk as well.
    return Stored(data_dir, records)


def write(broker: BrokerProcess) -> None:
    """Every kind of record there is, over every protocol, over several segments."""
    kafka_producers = [kafka_producer(broker, codec) for codec in Compression]
    with Client(broker.binary_url) as client, httpx.Client(base_url=broker.http_url) as http:
        client.create_topic("orders", partitions=2, configs=SMALL)
        client.create_topic("stamped", configs={**SMALL, "message.timestamp.type": "LogAppendTime"})
        for round_number in range(6):
            for topic in ("orders", "stamped"):
                for codec in Compression:
                    client.produce_many(topic, mixed(round_number * 100), compression=codec)
                body = b"".join(b'{"key":"k%d","value":{"n":%d}}\n' % (n, n) for n in range(60))
                http.post(
                    f"/v1/topics/{topic}/records",
                    content=body,
                    headers={"content-type": "application/x-ndjson"},
                ).raise_for_status()
                with stele.Producer(client, topic, batch_records_max=9) as once:
                    acked = [once.send(f"once {n}", key=f"k{n}") for n in range(40)]
                assert all(future.result().offset >= 0 for future in acked)
                client.produce(topic, b"alone", partition=0)
                for producer in kafka_producers:
                    for n in range(20):
                        producer.produce(topic, f"kafka {n}", key=f"k{n}", headers=[("listener", b"kafka")])
                    assert producer.flush(30) == 0
    for producer in kafka_producers:
        producer.close()


def kafka_producer(broker: BrokerProcess, codec: Compression) -> Producer:
    """Of librdkafka, on which the clients of most languages stand; idempotent for some codecs, not for others."""
    is_idempotent = codec in (Compression.NONE, Compression.ZSTD)
    return Producer(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "compression.type": codec.name.lower(),
            "enable.idempotence": is_idempotent,
            "acks": "all",
        }
    )


def mixed(first: int) -> list[NewRecord]:
    """Keys, headers, tombstones, empty and binary values; times that do not ascend."""
    records: list[NewRecord] = []
    for n in range(first, first + 30):
        timestamp = BASE_MS + 1000 * n - (5000 if n % 7 == 0 else 0)
        key = None if n % 5 == 0 else f"key-{n}"
        value = (
            None if n % 6 == 0 else b"" if n % 11 == 0 else bytes([n % 256, 255, 0]) * 9 if n % 4 else f"v{n}"
        )
        headers = [("trace", f"{n}".encode()), ("none", None), ("trace", b"")] if n % 3 == 0 else []
        # Half of them on one partition by number, so that it has the larger share of segments.
        partition = 0 if n % 2 else None
        records.append(NewRecord(value, key=key, headers=headers, timestamp=timestamp, partition=partition))
    return records


def read_all(broker: BrokerProcess) -> dict[str, list[Record[bytes]]]:
    by_partition: dict[str, list[Record[bytes]]] = {}
    with Client(broker.binary_url) as client:
        for topic in ("orders", "stamped"):
            with Consumer(client, topic, follow=False) as consumer:
                for record in consumer:
                    by_partition.setdefault(f"{record.topic}-{record.partition}", []).append(record)
    return by_partition


def dump(stored: Stored, *options: str) -> dict[str, list[str]]:
    """What the tool prints about each file, by ``partition/name``; one start of a JVM for all of them."""
    done = run_tool(TOOL, *options, "--files", ",".join(map(str, stored.files)))
    complain_not(done)
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in done.stdout.splitlines():
        if found := _FILE.match(line):
            path = Path(found[1])
            lines = sections[f"{path.parent.name}/{path.name}"] = []
        else:
            lines.append(line)
    assert set(sections) == {f"{path.parent.name}/{path.name}" for path in stored.files}
    return sections


def matches(pattern: re.Pattern[str], lines: list[str]) -> list[re.Match[str]]:
    return [found for line in lines if (found := pattern.match(line))]


def of_partition(sections: dict[str, list[str]], partition: str, suffix: str = "log") -> list[str]:
    """The lines about all segments of a partition, in the order of their offsets."""
    names = sorted(
        name for name in sections if name.startswith(f"{partition}/") and name.endswith(f".{suffix}")
    )
    return [line for name in names for line in sections[name]]


def test_there_are_several_segments_with_indexes_and_all_codecs(stored: Stored) -> None:
    assert set(stored.records) == {"orders-0", "orders-1", "stamped-0"}
    assert len(stored.logs()) >= 12
    sealed = {
        path
        for path in stored.logs()
        if path not in {max(path.parent.glob("*.log")) for path in stored.logs()}
    }
    for suffix in ("index", "timeindex"):
        # A small active segment has none, or none that says anything.
        indexed = {path.with_suffix(".log") for path in stored.logs(suffix) if path.stat().st_size}
        assert sealed <= indexed


@pytest.mark.long
def test_by_default_every_batch_is_printed_with_its_position(stored: Stored) -> None:
    sections = dump(stored)
    written = [line for lines in sections.values() for line in lines if line.startswith("baseOffset: ")]
    assert any(" producerId: -1 " not in line for line in written), "the producer's batches are idempotent"
    codecs = {line.partition("compresscodec: ")[2].split()[0] for line in written}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    for partition, records in stored.records.items():
        next_offset = 0
        for batch in matches(_BATCH, of_partition(sections, partition)):
            base_offset, last_offset, count = int(batch[1]), int(batch[2]), int(batch[3])
            assert (base_offset, last_offset - base_offset + 1) == (next_offset, count)
            next_offset = last_offset + 1
        assert next_offset == len(records)
    for path in stored.logs():
        batches = matches(_BATCH, sections[f"{path.parent.name}/{path.name}"])
        assert int(batches[0][1]) == int(path.stem), "a segment is named after its first offset"
        assert int(batches[-1][4]) + int(batches[-1][5]) == path.stat().st_size, "and read to its end"
    for path in stored.logs("index"):
        entries = matches(_OFFSET_ENTRY, sections[f"{path.parent.name}/{path.name}"])
        assert len(entries) == path.stat().st_size // 8
    for path in stored.logs("timeindex"):
        entries = matches(_TIME_ENTRY, sections[f"{path.parent.name}/{path.name}"])
        assert len(entries) == path.stat().st_size // 12


@pytest.mark.long
def test_deep_iteration_prints_every_record_with_key_size_headers_and_time(stored: Stored) -> None:
    sections = dump(stored, "--deep-iteration")
    for partition, records in stored.records.items():
        seen = matches(_RECORD, of_partition(sections, partition))
        assert len(seen) == len(records)
        for found, record in zip(seen, records, strict=True):
            assert int(found[1]) == record.offset
            if partition != "stamped-0":
                assert int(found[2]) == record.timestamp
            assert int(found[3]) == (-1 if record.key is None else len(record.key))
            assert int(found[4]) == (-1 if record.value is None else len(record.value))
            assert found[6] == ",".join(name for name, _ in record.headers)


@pytest.mark.long
def test_it_verifies_every_index_against_its_log(stored: Stored) -> None:
    sections = dump(stored, "--deep-iteration", "--verify-index-only")
    reports = [line for name, lines in sections.items() if name.endswith("index") for line in lines]
    # A segment that has just begun.
    empty = [f"{path} is empty." for path in stored.files if not path.stat().st_size]
    assert sorted(reports) == sorted(empty)


@pytest.mark.long
def test_with_the_data_it_prints_every_value(stored: Stored) -> None:
    sections = dump(stored, "--print-data-log")
    for partition, records in stored.records.items():
        printed = [found[8] for found in matches(_RECORD, of_partition(sections, partition))]
        assert len(printed) == len(records)
        for text, record in zip(printed, records, strict=True):
            # The tool shows bytes that are not UTF-8 as best it can, and nothing for a tombstone.
            if record.value is not None and record.value.isascii():
                assert text == record.value.decode()


@pytest.mark.long
def test_it_would_complain_about_an_index_entry_that_points_elsewhere(stored: Stored, tmp_path: Path) -> None:
    log = stored.logs()[0]
    for suffix in ("log", "index", "timeindex"):
        shutil.copy(log.with_suffix(f".{suffix}"), tmp_path)
    # The low byte of the offset in the first entry of each.
    for suffix, byte in (("index", 3), ("timeindex", 11)):
        path = tmp_path / f"{log.stem}.{suffix}"
        wrong = bytearray(path.read_bytes())
        wrong[byte] += 1
        path.write_bytes(wrong)
        done = run_tool(TOOL, "--deep-iteration", "--verify-index-only", "--files", str(path))
        assert COMPLAINTS.search(done.stdout + done.stderr)


# ── compacted segments ──

_CLEANED_BATCH = re.compile(
    r"^baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<sequence>-?\d+) .* producerId: (?P<producer>-?\d+) .*"
    r"deleteHorizonMs: (?P<horizon>OptionalLong\S+) .* compresscodec: (?P<codec>\w+) .* isvalid: true$"
)
_HOLE = re.compile(r"^  (\d+) is followed by (\d+)$", re.MULTILINE)
# Of the producer whose last batch has lost all its records.
PRODUCER = 7


@pytest.fixture(scope="module")
def cleaned(tool: None, tmp_path_factory: pytest.TempPathFactory) -> CleanedPartition[RealFiles]:
    """A partition after a pass: per codec some segments with holes, tombstones and a batch without records."""
    directory = tmp_path_factory.mktemp("cleaned") / "users-0"
    directory.mkdir()
    partition = CleanedPartition(RealFiles(), directory)
    segments: list[list[bytes]] = []
    offset = 0
    for codec in Compression:
        batches: list[bytes] = []
        for number in range(8):
            records = [
                Keyed(b"once %d" % offset, b"stays " * 5, headers=(("trace", b"1"),)),
                Keyed(b"again %d" % (number % 3), b"is replaced, except for the last"),
                Keyed(b"gone %d" % offset if number % 2 else b"again 0", None, timestamp_ms=NOW_MS - number),
                Keyed(b"again 1", b"%d" % number),
            ]
            batches.append(batch_of(records, offset, compression=codec))
            offset += len(records)
        idempotent = batch_of(
            [Keyed(b"again 2")] * 3,
            offset,
            compression=codec,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=offset,
        )
        offset += 3
        batches.append(idempotent)
        batches.append(batch_of([Keyed(b"again 2", b"%d" % offset)], offset, compression=codec))
        offset += 1
        segments.append(batches)
    partition.write(segments)
    before = partition.records()
    partition.clean(
        last_batches=partition.batch_offsets(lambda header: header.producer_id == PRODUCER),
        rules=replace(RULES, segment_bytes=4096),
    )
    assert partition.records() == compacted(before)
    assert len(partition.records()) < len(before)
    partition.facts()
    return partition


def dump_cleaned(partition: CleanedPartition[RealFiles], *options: str) -> subprocess.CompletedProcess[str]:
    files = sorted(partition.directory.iterdir())
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex"}
    done = run_tool(TOOL, *options, "--files", ",".join(map(str, files)))
    assert done.returncode == 0, done.stderr
    return done


def test_it_prints_every_record_and_horizon_of_a_compacted_log(
    cleaned: CleanedPartition[RealFiles],
) -> None:
    done = dump_cleaned(cleaned, "--deep-iteration", "--print-data-log")
    lines = done.stdout.splitlines()

    printed = [
        (int(found[1]), found[7].encode(), None if found[8] is None else found[8].encode(), int(found[2]))
        for found in matches(_RECORD, lines)
    ]
    assert printed == [(r.offset, r.key, r.value, r.timestamp_ms) for r in cleaned.records()]

    batches = [found.groupdict() for found in matches(_CLEANED_BATCH, lines)]
    assert len(batches) == sum(line.startswith("baseOffset: ") for line in lines), "all have a valid CRC"
    with_records = [each for each in batches if each["count"] != "0"]
    horizons = {(each["codec"], each["horizon"]) for each in with_records}
    codecs = {codec for codec, _ in horizons}
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    # Each codec has batches with tombstones, and others.
    times = ("OptionalLong.empty", f"OptionalLong[{NOW_MS + DAY_MS}]")
    assert horizons == {(codec, time) for codec in codecs for time in times}
    # What an idempotent producer sent last has lost its records, and kept its sequences.
    empty = [each for each in batches if each["producer"] == str(PRODUCER)]
    assert [(each["count"], each["sequence"]) for each in empty] == [("0", each["base"]) for each in empty]
    assert len(empty) == len(Compression)


@pytest.mark.long
def test_it_finds_holes_in_a_compacted_log_and_nothing_else(cleaned: CleanedPartition[RealFiles]) -> None:
    done = dump_cleaned(cleaned, "--deep-iteration")
    assert [
        line for line in done.stdout.splitlines() if COMPLAINTS.search(line.replace("isvalid: true", ""))
    ] == []
    reported = {(int(found[1]), int(found[2])) for found in _HOLE.finditer(done.stderr)}
    offsets = [record.offset for record in cleaned.records()]
    assert reported <= {(before, after) for before, after in pairwise(offsets) if after > before + 1}
    assert reported
    rest = re.sub(
        r"^Non-consecutive offsets in .*\n|^  -?\d+ is followed by \d+\n", "", done.stderr, flags=re.MULTILINE
    )
    assert rest == ""


@pytest.mark.long
def test_it_verifies_the_indexes_of_a_compacted_log(cleaned: CleanedPartition[RealFiles]) -> None:
    done = dump_cleaned(cleaned, "--deep-iteration", "--verify-index-only")
    reports = [line for line in (done.stdout + done.stderr).splitlines() if COMPLAINTS.search(line)]
    assert [line for line in reports if not line.startswith("Non-consecutive")] == []
    assert any(path.stat().st_size for path in cleaned.directory.glob("*.index"))


# ── transactions ──

_ABORTED = re.compile(
    r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)$"
)
_MARKER = re.compile(r"^\| offset: (\d+) .* endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: 3$")


async def write_transactions(path: Path) -> None:
    """Close a partition of several segments in which every second transaction is aborted."""
    clock = SimulatedClock()
    config = TopicConfig(segment_bytes=1_000, index_interval_bytes=100)
    engine = await open_engine(
        RealFilesInSimulatedTime(), [spec_of(ORDERS, clock=clock, config=config)], clock=clock, path=path
    )
    for number in range(20):
        for producer_id in (7, 8):
            data = batch_of_values(
                [b"x" * 50] * 2, producer_id=producer_id, base_sequence=2 * number, is_transactional=True
            )
            engine.append(ORDERS, data, [rb.read_header(data)], sync=False)
        for producer_id in (7, 8):
            marker = EndTransactionMarker(type=MarkerType(number % 2), coordinator_epoch=3)
            data = marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)
            engine.append(ORDERS, data, [rb.read_header(data)], sync=False)
    await engine.flush()
    await engine.close()


@pytest.mark.long
def test_it_reads_markers_and_aborted_transactions(tool: None, tmp_path: Path) -> None:
    run_simulated(lambda: write_transactions(tmp_path / "data"))
    directory = tmp_path / "data" / "orders-0"
    files = sorted(path for suffix in ("log", "txnindex") for path in directory.glob(f"*.{suffix}"))
    assert len(files) > 6
    done = run_tool(TOOL, "--deep-iteration", "--files", ",".join(map(str, files)))
    complain_not(done)
    markers = matches(_MARKER, done.stdout.splitlines())
    assert [(int(found[1]), found[2]) for found in markers] == [
        (6 * number + 4 + at, "COMMIT" if number % 2 else "ABORT") for number in range(20) for at in (0, 1)
    ]
    aborted = matches(_ABORTED, done.stdout.splitlines())
    assert [tuple(map(int, found.groups())) for found in aborted] == [
        entry
        for base in range(0, 120, 12)
        for entry in ((7, base, base + 4, base + 2), (8, base + 2, base + 5, base + 6))
    ]
