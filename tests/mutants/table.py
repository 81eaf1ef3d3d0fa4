"""The mutants: small mistakes in storage, broker and groups, each with the tests that must notice it."""

from __future__ import annotations

from typing import NamedTuple

_STORAGE, _BROKER, _GROUPS = "tests/unit/storage", "tests/unit/broker", "tests/unit/groups"
_CONTRACT = f"{_STORAGE}/test_engine_contract.py"


class Mutant(NamedTuple):
    """``before``, which is in ``path`` exactly once, becomes ``after``; ``tests`` is one file, ``only`` a ``-k``."""

    path: str
    before: str
    after: str
    tests: str
    only: str = ""


MUTANTS = (
    # ── storage ──
    Mutant(
        "app/storage/waiters.py",
        "            waiter.appended(topic_partition, size)\n",
        "            pass\n",
        _CONTRACT,
        "long_poll or drop_ends or wake_all",
    ),
    Mutant(
        "app/storage/waiters.py",
        "            self.wake(topic_partition)\n",
        "            pass\n",
        _CONTRACT,
        "long_poll or drop_ends or wake_all",
    ),
    Mutant(
        "app/storage/waiters.py",
        "if self.missing_bytes <= 0 and",
        "if self.missing_bytes < 0 and",
        _CONTRACT,
        "long_poll or drop_ends or wake_all",
    ),
    Mutant(
        "app/storage/offset_index.py",
        "bisect_right(self._entries, relative_offset << 32 | _LOW)",
        "bisect_right(self._entries, relative_offset << 32)",
        f"{_STORAGE}/test_offset_index.py",
    ),
    Mutant(
        "app/storage/offset_index.py",
        "& _LOW <= position:",
        "& _LOW < position:",
        f"{_STORAGE}/test_offset_index.py",
    ),
    Mutant(
        "app/storage/offset_index.py",
        "index.last_position() >= log_bytes",
        "index.last_position() > log_bytes",
        f"{_STORAGE}/test_offset_index.py",
    ),
    Mutant(
        "app/storage/time_index.py",
        "timestamp_ms > self._timestamps[-1]",
        "timestamp_ms >= self._timestamps[-1]",
        f"{_STORAGE}/test_time_index.py",
    ),
    Mutant(
        "app/storage/time_index.py",
        "bisect_right(self._timestamps, timestamp_ms)",
        "bisect_right(self._timestamps, timestamp_ms - 1)",
        f"{_STORAGE}/test_time_index.py",
    ),
    Mutant(
        "app/storage/time_index.py",
        "[0] <= timestamp_ms:",
        "[0] < timestamp_ms:",
        f"{_STORAGE}/test_time_index.py",
    ),
    Mutant(
        "app/storage/age.py",
        "if newest_ms >= limit_ms else",
        "if newest_ms > limit_ms else",
        f"{_STORAGE}/test_age.py",
    ),
    Mutant(
        "app/storage/age.py",
        "latest_ms = now_ms - retention_ms, arrival_ms + after_max_ms",
        "latest_ms = now_ms - retention_ms, arrival_ms",
        f"{_STORAGE}/test_age.py",
    ),
    Mutant(
        "app/storage/age.py",
        "self.has_untimed or other.has_untimed",
        "self.has_untimed and other.has_untimed",
        f"{_STORAGE}/test_age.py",
    ),
    Mutant(
        "app/storage/checkpoint.py",
        "if entry[1] < offset]",
        "if entry[1] <= offset]",
        f"{_STORAGE}/test_checkpoint.py",
    ),
    Mutant(
        "app/storage/checkpoint.py",
        "if candidate > epoch:",
        "if candidate >= epoch:",
        _CONTRACT,
        "epoch",
    ),
    Mutant(
        "app/storage/checkpoint.py",
        "lines[1] != str(len(lines) - 2)",
        "False",
        f"{_STORAGE}/test_checkpoint.py",
    ),
    Mutant(
        "app/storage/memory_log.py",
        "self.log_start_offset = max(self.log_start_offset, oldest.next_offset)",
        "self.log_start_offset = max(self.log_start_offset, oldest.base_offset)",
        _CONTRACT,
        "ring",
    ),
    Mutant(
        "app/storage/memory_log.py",
        "and len(self._batches) > 1",
        "",
        _CONTRACT,
        "ring",
    ),
    # ── broker ──
    Mutant(
        "app/broker/producer_state.py",
        "if header.producer_epoch < producer.epoch:",
        "if header.producer_epoch < producer.epoch - 1:",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/broker/producer_state.py",
        "(producer.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS",
        "(producer.batches[-1].last_sequence + 1)",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/broker/producer_state.py",
        "BATCHES_REMEMBERED = 5",
        "BATCHES_REMEMBERED = 4",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/broker/producer_state.py",
        "if state.timestamp_ms < before_ms]",
        "if state.timestamp_ms > before_ms]",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/broker/admission.py",
        "if connections >= self._connections_max:",
        "if connections > self._connections_max:",
        f"{_BROKER}/test_admission.py",
    ),
    Mutant(
        "app/broker/admission.py",
        "file_number() >= self._open_files_max",
        "file_number() > self._open_files_max + 100",
        f"{_BROKER}/test_admission.py",
    ),
    Mutant(
        "app/broker/timestamps.py",
        "timestamp_ms <= self.latest_ms and",
        "timestamp_ms < self.latest_ms and",
        f"{_BROKER}/test_timestamps.py",
    ),
    Mutant(
        "app/broker/timestamps.py",
        "if len(self._errors) < RECORD_ERRORS_MAX:",
        "if True:",
        f"{_BROKER}/test_timestamps.py",
    ),
    Mutant(
        "app/broker/placement.py",
        "        if partitions < 1:\n",
        "        if partitions < 0:\n",
        f"{_BROKER}/test_placement.py",
    ),
    Mutant(
        "app/broker/placement.py",
        "if sorted(numbers) != list(range(len(numbers))):",
        "if False:",
        f"{_BROKER}/test_placement.py",
    ),
    Mutant(
        "app/broker/produce_queue.py",
        "        self._bytes -= job.size\n",
        "",
        f"{_BROKER}/test_produce_queue.py",
    ),
    # ── groups ──
    Mutant(
        "app/groups/assignors.py",
        "if len(assignments[rich]) - len(assignments[poor]) > 1",
        "if len(assignments[rich]) - len(assignments[poor]) > 2",
        f"{_GROUPS}/test_assignors.py",
    ),
    Mutant(
        "app/groups/assignors.py",
        "(index < count % len(members))",
        "(index <= count % len(members))",
        f"{_GROUPS}/test_assignors.py",
    ),
    Mutant(
        "app/groups/group.py",
        "        if generation != self.generation:\n",
        "        if generation > self.generation:\n",
        f"{_GROUPS}/test_group.py",
    ),
    Mutant(
        "app/groups/group.py",
        "if key == old.member_id else key: new",
        "if key != old.member_id else key: new",
        f"{_GROUPS}/test_group.py",
    ),
    Mutant(
        "app/groups/group.py",
        "((name, _),) = votes.most_common(1)",
        "(*_, (name, _)) = votes.most_common()",
        f"{_GROUPS}/test_group.py",
    ),
    Mutant(
        "app/groups/offsets.py",
        "if not 0 <= requested.partition < current.partitions:",
        "if not 0 <= requested.partition <= current.partitions:",
        f"{_GROUPS}/test_offsets.py",
    ),
    Mutant(
        "app/groups/offsets.py",
        "if size > metadata_bytes_max:",
        "if size >= metadata_bytes_max:",
        f"{_GROUPS}/test_offsets.py",
    ),
    Mutant(
        "app/groups/offsets.py",
        "max(record.committed_at_ms, group.emptied_at_ms or 0)",
        "min(record.committed_at_ms, group.emptied_at_ms or 0)",
        f"{_GROUPS}/test_offset_expiry.py",
    ),
    Mutant(
        "app/groups/offsets.py",
        "        return now_ms >= record.expires_at_ms\n",
        "        return now_ms > record.expires_at_ms\n",
        f"{_GROUPS}/test_offset_expiry.py",
    ),
    Mutant(
        "app/groups/offsets.py",
        "group.emptied_at_ms or 0) >= retention_ms",
        "group.emptied_at_ms or 0) > retention_ms",
        f"{_GROUPS}/test_offset_expiry.py",
    ),
    Mutant(
        "app/groups/offset_retention.py",
        "if offsets.is_being_written:",
        "if False:",
        f"{_GROUPS}/test_offsets.py",
        "sweep",
    ),
)
