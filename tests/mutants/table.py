"""The mutants: small mistakes in storage, broker, groups and transactions, each with the tests that must notice it."""

from __future__ import annotations

from typing import NamedTuple

_STORAGE, _BROKER, _GROUPS = "tests/unit/storage", "tests/unit/broker", "tests/unit/groups"
_LATE = "tests/integration/test_late_offsets.py"
_IDLE_READING = "tests/unit/tcp/kafka/test_idle_reading.py"
_TRANSACTIONS = "tests/unit/transactions"
_CONTRACT = f"{_STORAGE}/test_engine_contract.py"


class Mutant(NamedTuple):
    """``before``, which is in ``path`` exactly once, becomes ``after``; ``tests`` is one file, ``only`` a ``-k``."""

    path: str
    before: str
    after: str
    tests: str
    only: str = ""


MUTANTS = (
    # ── histories of the database ──
    Mutant(
        "app/storage/shared/log.py",
        "        if row.history != self.history:\n            return\n",
        "",
        f"{_STORAGE}/shared/test_histories.py",
        "promoted_standby",
    ),
    Mutant(
        "app/storage/shared/log.py",
        "        self.history, self.epochs = row.history, _epochs_of(row)\n",
        "        self.history = row.history\n",
        f"{_STORAGE}/shared/test_histories.py",
        "diverges",
    ),
    Mutant(
        "app/storage/shared/committer.py",
        "                if not is_stored_well:\n",
        "                if False:\n",
        f"{_STORAGE}/shared/test_histories.py",
        "receipt",
    ),
    # ── kept answers of idle partitions, grouped syncs ──
    Mutant(
        "app/tcp/kafka/sessions/idle_answers.py",
        "            self._forget(name)\n",
        "            pass\n",
        _IDLE_READING,
        "only_partitions_with_news",
    ),
    Mutant(
        "app/tcp/kafka/sessions/idle_answers.py",
        "            self.watch.discard(name)\n",
        "            pass\n",
        _IDLE_READING,
        "read_no_more",
    ),
    Mutant(
        "app/tcp/kafka/fetching/idle_reading.py",
        "if key in seen or ",
        "if ",
        _IDLE_READING,
        "named_twice",
    ),
    Mutant(
        "app/tcp/kafka/fetching/idle_reading.py",
        "if block.key != last:",
        "if True:",
        _IDLE_READING,
        "side_by_side",
    ),
    Mutant(
        "app/tcp/kafka/fetching/idle_reading.py",
        "or not (look.is_current or _is_unchanged(self._context.broker, read))",
        "",
        _IDLE_READING,
        "during_a_read_that_waits",
    ),
    Mutant(
        "app/storage/syncing/flusher.py",
        "            if log in self._running:\n                self.next_round(log)\n",
        "            if log in self._running:\n                pass\n",
        f"{_STORAGE}/test_grouped_flushes.py",
        "while_a_round_is_under_way",
    ),
    Mutant(
        "app/storage/syncing/flusher.py",
        "        self._due.pop(log, None)\n",
        "",
        f"{_STORAGE}/test_grouped_flushes.py",
        "dropped",
    ),
    # ── share groups in a cluster ──
    Mutant(
        "app/tcp/kafka/context.py",
        "            if self.share_sessions.has_member(session.group, session.member_id):\n",
        "            if False:\n",
        "tests/integration/shared_storage/test_share_members.py",
        "through_any_broker",
    ),
    Mutant(
        "app/tcp/kafka/connection.py",
        "            self._shares.close()\n",
        "            pass\n",
        "tests/integration/shared_storage/test_share_members.py",
        "connection_that_ends",
    ),
    Mutant(
        "app/main.py",
        "    shared.cluster.observe_members(partial(end_sessions_of_dead, kafka))\n",
        "",
        "tests/integration/shared_storage/test_share_members.py",
        "read_from_is_killed",
    ),
    Mutant(
        "app/tcp/kafka/share_forwarding.py",
        "                    request = replace(request, max_records=0)\n",
        "                    pass\n",
        "tests/integration/shared_storage/test_share_members.py",
        "quota",
    ),
    Mutant(
        "app/broker/forwarding.py",
        "        if bytes_max is not None and size > bytes_max:\n",
        "        if False:\n",
        "tests/unit/broker/test_forwarding.py",
    ),
    # ── transactions with shared storage ──
    Mutant(
        "app/storage/shared/commit_rules.py",
        "return min(self.opened.values(), default=None)",
        "return max(self.opened.values(), default=None)",
        f"{_STORAGE}/test_transactions_of_engines.py",
    ),
    Mutant(
        "app/storage/shared/commit_rules.py",
        "header.producer_epoch < known.epoch:\n                fenced",
        "header.producer_epoch > known.epoch:\n                fenced",
        f"{_STORAGE}/test_transactions_of_engines.py",
    ),
    Mutant(
        "app/storage/shared/reader.py",
        "end_offset = max(header.next_offset for header in rb.iter_headers(batches))",
        "end_offset = log.last_stable_offset",
        f"{_STORAGE}/test_transactions_of_engines.py",
    ),
    Mutant(
        "app/storage/shared/log.py",
        "is_stable_moved=stable != self.last_stable_offset,",
        "is_stable_moved=False,",
        f"{_STORAGE}/test_transactions_of_engines.py",
    ),
    Mutant(
        "app/storage/shared/commit_rules.py",
        "if row.is_ongoing and (is_open_here",
        "if (is_open_here",
        f"{_STORAGE}/shared/test_claims.py",
    ),
    Mutant(
        "app/storage/shared/commit_rules.py",
        "if header.producer_epoch != row.epoch:",
        "if header.producer_epoch > row.epoch:",
        f"{_STORAGE}/shared/test_claims.py",
    ),
    Mutant(
        "app/cluster/postgres/transactions.py",
        "_end_offsets(connection, end) for end in update.ends]",
        "_end_offsets(connection, end) for end in list(update.ends)[:1]]",
        "tests/integration/shared_storage/test_transactions.py",
        "committed_as_one",
    ),
    Mutant(
        "app/storage/shared/reader.py",
        "if offset < found.log.log_start:",
        "if offset < log.log_start_offset:",
        f"{_STORAGE}/shared/test_aborted_reads.py",
    ),
    Mutant(
        "app/storage/shared/reader.py",
        "if log.config.is_compacted and read_ms > _READ_MS_MAX:",
        "if log.config.is_compacted and read_ms > 10 * _READ_MS_MAX:",
        f"{_STORAGE}/shared/test_aborted_reads.py",
    ),
    Mutant(
        "app/storage/cleaning/batch_filter.py",
        "max(delete_retention_ms, marker_ms_min)",
        "delete_retention_ms",
        f"{_STORAGE}/cleaning/test_batch_filter.py",
    ),
    # ── writes of a broker that was paused and replaced ──
    Mutant(
        "app/cluster/postgres/groups.py",
        "if row is None or (row[0], row[1]) != (epoch, self._incarnation):",
        "if row is None:",
        "tests/integration/shared_storage/test_fencing.py",
        "a_commit_of_offsets",
    ),
    Mutant(
        "app/storage/shared/commit_rules.py",
        "newest_epoch=self.named_epochs.get(producer_id),",
        "",
        "tests/integration/shared_storage/test_fencing.py",
        "an_append_of_a_named_producer",
    ),
    # ── storage ──
    Mutant(
        "app/storage/waiters.py",
        "()):\n            waiter.appended(topic_partition, size)\n",
        "()):\n            pass\n",
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
        "if self.missing_bytes <= 0:",
        "if self.missing_bytes < 0:",
        _CONTRACT,
        "long_poll or drop_ends or wake_all",
    ),
    Mutant(
        "app/storage/segments/offset_index.py",
        "bisect_right(self._entries, relative_offset << 32 | _LOW)",
        "bisect_right(self._entries, relative_offset << 32)",
        f"{_STORAGE}/test_offset_index.py",
    ),
    Mutant(
        "app/storage/segments/offset_index.py",
        "& _LOW <= position:",
        "& _LOW < position:",
        f"{_STORAGE}/test_offset_index.py",
    ),
    Mutant(
        "app/storage/segments/offset_index.py",
        "index.last_position() >= log_bytes",
        "index.last_position() > log_bytes",
        f"{_STORAGE}/test_offset_index.py",
    ),
    Mutant(
        "app/storage/segments/time_index.py",
        "timestamp_ms > self._timestamps[-1]",
        "timestamp_ms >= self._timestamps[-1]",
        f"{_STORAGE}/test_time_index.py",
    ),
    Mutant(
        "app/storage/segments/time_index.py",
        "bisect_right(self._timestamps, timestamp_ms)",
        "bisect_right(self._timestamps, timestamp_ms - 1)",
        f"{_STORAGE}/test_time_index.py",
    ),
    Mutant(
        "app/storage/segments/time_index.py",
        "[0] <= timestamp_ms:",
        "[0] < timestamp_ms:",
        f"{_STORAGE}/test_time_index.py",
    ),
    Mutant(
        "app/storage/segments/age.py",
        "if newest_ms >= limit_ms else",
        "if newest_ms > limit_ms else",
        f"{_STORAGE}/test_age.py",
    ),
    Mutant(
        "app/storage/segments/age.py",
        "latest_ms = now_ms - retention_ms, arrival_ms + after_max_ms",
        "latest_ms = now_ms - retention_ms, arrival_ms",
        f"{_STORAGE}/test_age.py",
    ),
    Mutant(
        "app/storage/segments/age.py",
        "self.has_untimed or other.has_untimed",
        "self.has_untimed and other.has_untimed",
        f"{_STORAGE}/test_age.py",
    ),
    Mutant(
        "app/storage/recovery/checkpoint.py",
        "if entry[1] < offset]",
        "if entry[1] <= offset]",
        f"{_STORAGE}/test_checkpoint.py",
    ),
    Mutant(
        "app/storage/recovery/checkpoint.py",
        "if candidate > epoch:",
        "if candidate >= epoch:",
        _CONTRACT,
        "epoch",
    ),
    Mutant(
        "app/storage/recovery/checkpoint.py",
        "lines[1] != str(len(lines) - 2)",
        "False",
        f"{_STORAGE}/test_checkpoint.py",
    ),
    Mutant(
        "app/storage/logs/manager.py",
        "await self._log_dir.in_thread(syncs.sync, unsynced)",
        "pass",
        f"{_STORAGE}/test_recovery_syncs.py",
    ),
    Mutant(
        "app/storage/recovery/loader.py",
        "self._unsynced.append(segment.path)",
        "pass",
        f"{_STORAGE}/test_recovery_syncs.py",
    ),
    Mutant(
        "app/storage/disk/files.py",
        "if path.stat().st_dev != self._device]",
        "if False]",
        f"{_STORAGE}/test_recovery_syncs.py",
    ),
    Mutant(
        "app/storage/logs/memory_log.py",
        "self.log_start_offset = max(self.log_start_offset, oldest.next_offset)",
        "self.log_start_offset = max(self.log_start_offset, oldest.base_offset)",
        _CONTRACT,
        "ring",
    ),
    Mutant(
        "app/storage/logs/memory_log.py",
        "and len(self._batches) > 1",
        "",
        _CONTRACT,
        "ring",
    ),
    # ── broker ──
    Mutant(
        "app/storage/sequences.py",
        "if epoch < known.epoch:",
        "if epoch < known.epoch - 1:",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/storage/sequences.py",
        "(known.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS",
        "(known.batches[-1].last_sequence + 1)",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/storage/sequences.py",
        "BATCHES_REMEMBERED = 5",
        "BATCHES_REMEMBERED = 4",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/broker/producing/producer_state.py",
        "if state.timestamp_ms < before_ms and",
        "if state.timestamp_ms > before_ms and",
        f"{_BROKER}/test_producer_state.py",
    ),
    Mutant(
        "app/network/admission.py",
        "if self._admitted >= self._connections_max:",
        "if self._admitted > self._connections_max:",
        "tests/unit/network/test_admission.py",
    ),
    Mutant(
        "app/network/admission.py",
        "file_number >= self._open_files_max",
        "file_number > self._open_files_max + 100",
        "tests/unit/network/test_admission.py",
    ),
    Mutant(
        "app/broker/producing/timestamps.py",
        "timestamp_ms <= self.latest_ms and",
        "timestamp_ms < self.latest_ms and",
        f"{_BROKER}/test_timestamps.py",
    ),
    Mutant(
        "app/broker/producing/timestamps.py",
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
        "app/broker/producing/produce_queue.py",
        "        self._bytes -= job.size\n",
        "",
        f"{_BROKER}/test_produce_queue.py",
    ),
    Mutant(
        "app/storage/embedded.py",
        "            if stored is not None:\n",
        "            if False:\n",
        "tests/unit/storage/test_engine_appends.py",
    ),
    Mutant(
        "app/broker/reading/partition_reader.py",
        "if len(names) == len(reads) and await self._engine.refresh(names):",
        "if False:",
        _LATE,
    ),
    Mutant(
        "app/groups/lag.py",
        "    await broker.refresh([(lag.topic, lag.partition) for lag in group_lag(broker, coordinator, group)])\n",
        "",
        _LATE,
    ),
    Mutant(
        "app/api/routes/group_members.py",
        "    await broker_of(request).refresh([(claimant.topic, claimant.partition)])\n",
        "",
        _LATE,
    ),
    Mutant(
        "app/tcp/binary/connection.py",
        "if self._produces and sees_records(request):",
        "if False:",
        _LATE,
    ),
    # ── groups ──
    Mutant(
        "app/groups/classic/assignors.py",
        "if len(assignments[rich]) - len(assignments[poor]) > 1",
        "if len(assignments[rich]) - len(assignments[poor]) > 2",
        f"{_GROUPS}/test_assignors.py",
    ),
    Mutant(
        "app/groups/classic/assignors.py",
        "(index < count % len(members))",
        "(index <= count % len(members))",
        f"{_GROUPS}/test_assignors.py",
    ),
    Mutant(
        "app/groups/classic/group.py",
        "if generation != self.generation and",
        "if generation > self.generation and",
        f"{_GROUPS}/test_group.py",
    ),
    Mutant(
        "app/groups/classic/group.py",
        "if key == old.member_id else key: new",
        "if key != old.member_id else key: new",
        f"{_GROUPS}/test_group.py",
    ),
    Mutant(
        "app/groups/classic/group.py",
        "((name, _),) = votes.most_common(1)",
        "(*_, (name, _)) = votes.most_common()",
        f"{_GROUPS}/test_group.py",
    ),
    Mutant(
        "app/groups/consumer/reconciliation.py",
        "if _owns_any(owned, member.revoking):",
        "if owned and _owns_any(owned, member.revoking):",
        f"{_GROUPS}/test_consumer_group.py",
    ),
    Mutant(
        "app/groups/consumer/reconciliation.py",
        "        epoch += 1\n",
        "        epoch = assignment_epoch\n",
        f"{_GROUPS}/test_consumer_group.py",
    ),
    Mutant(
        "app/groups/consumer/reconciliation.py",
        "for part in missing if is_free(part)}",
        "for part in missing}",
        f"{_GROUPS}/test_consumer_group_histories.py",
        "has_one_owner",
    ),
    Mutant(
        "app/groups/consumer/group.py",
        "and member.holds(request.owned)",
        "",
        f"{_GROUPS}/test_consumer_group.py",
    ),
    Mutant(
        "app/groups/consumer/group.py",
        "            after = replace(after, previous_epoch=request.epoch)\n",
        "",
        f"{_GROUPS}/test_consumer_group_histories.py",
        "has_one_owner",
    ),
    Mutant(
        "app/groups/consumer/commits.py",
        "member.revoking.get(part, member.epoch)",
        "member.epoch",
        f"{_GROUPS}/test_consumer_group.py",
    ),
    Mutant(
        "app/groups/consumer/commits.py",
        "epoch < member.epoch and all(",
        "epoch < member.epoch and any(",
        f"{_GROUPS}/test_consumer_group.py",
    ),
    Mutant(
        "app/groups/consumer/live_group.py",
        "self.group.give_back(changes)",
        "pass",
        f"{_GROUPS}/test_live_consumer_groups.py",
    ),
    Mutant(
        "app/groups/consumer/live_group.py",
        "elif self._revoking.get(member_id) != member.epoch:",
        "else:",
        f"{_GROUPS}/test_live_consumer_groups.py",
    ),
    Mutant(
        "app/groups/consumer/assignors.py",
        "        if extra and len(had[member]) > quota:",
        "        if extra:",
        f"{_GROUPS}/test_consumer_assignors.py",
    ),
    Mutant(
        "app/groups/base/offset_rules.py",
        "if not 0 <= requested.partition < current.partitions:",
        "if not 0 <= requested.partition <= current.partitions:",
        f"{_GROUPS}/test_offsets.py",
    ),
    Mutant(
        "app/groups/base/offset_rules.py",
        "if size > metadata_bytes_max:",
        "if size >= metadata_bytes_max:",
        f"{_GROUPS}/test_offsets.py",
    ),
    Mutant(
        "app/groups/base/offset_rules.py",
        "max(record.committed_at_ms, group.emptied_at_ms or 0)",
        "min(record.committed_at_ms, group.emptied_at_ms or 0)",
        f"{_GROUPS}/test_offset_expiry.py",
    ),
    Mutant(
        "app/groups/base/offset_rules.py",
        "        return now_ms >= record.expires_at_ms\n",
        "        return now_ms > record.expires_at_ms\n",
        f"{_GROUPS}/test_offset_expiry.py",
    ),
    Mutant(
        "app/groups/base/offset_rules.py",
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
    # ── visibility ──
    Mutant(
        "app/storage/logs/high_watermark.py",
        "waiting = self._running or self._next",
        "waiting = self._next",
        f"{_STORAGE}/test_visibility.py",
    ),
    Mutant(
        "app/storage/logs/high_watermark.py",
        "self._appended_bytes if self._next is None else self._next.appended_bytes",
        "self._appended_bytes",
        f"{_STORAGE}/test_visibility.py",
    ),
    Mutant(
        "app/storage/logs/log.py",
        "return end if first_open is None else min(max(first_open, self.log_start_offset), end)",
        "return end if first_open is None else max(first_open, self.log_start_offset)",
        f"{_STORAGE}/test_visibility.py",
    ),
    Mutant(
        "app/storage/logs/reader.py",
        "end_offset = _visible_end(log.readable_ends, is_committed=is_committed)",
        "end_offset = log.last_stable_offset if is_committed else log.log_end_offset",
        f"{_STORAGE}/test_visibility.py",
    ),
    Mutant(
        "app/storage/embedded.py",
        "            self._moved(log, ends_before, size_bytes)\n",
        "            pass\n",
        f"{_STORAGE}/test_visibility.py",
        "woken",
    ),
    # ── transactions ──
    Mutant(
        "app/storage/segments/transaction_index.py",
        "if entry.first_offset < end_offset:",
        "if entry.first_offset <= end_offset:",
        f"{_STORAGE}/test_transactions.py",
        "transactions_that_its_batches_say",
    ),
    Mutant(
        "app/storage/segments/open_transactions.py",
        "        self._first_offsets.setdefault(producer_id, offset)\n",
        "        self._first_offsets[producer_id] = offset\n",
        f"{_STORAGE}/test_transactions.py",
        "transactions_that_its_batches_say",
    ),
    Mutant(
        "app/transactions/transaction.py",
        """        self._check_producer(producer)
        if self.pending is not None or self.state.is_preparing:
""",
        """        self._check_producer(producer)
        if self.pending is not None:
""",
        f"{_TRANSACTIONS}/test_transaction.py",
        "adding_waits",
    ),
    Mutant(
        "app/transactions/transaction.py",
        "if producer.epoch not in (self.epoch, self.epoch - 1):",
        "if producer.epoch > self.epoch:",
        f"{_TRANSACTIONS}/test_transaction.py",
        "raises_the_epoch or fenced",
    ),
    Mutant(
        "app/transactions/transaction.py",
        "        self.epoch = plan.producer.epoch\n",
        "",
        f"{_TRANSACTIONS}/test_transaction.py",
        "cannot_be_stored",
    ),
    Mutant(
        "app/transactions/transaction.py",
        "        if self.state is TransactionState.ONGOING and topic_partition in self.partitions:\n",
        "        if self.state is TransactionState.ONGOING:\n",
        f"{_TRANSACTIONS}/test_transaction.py",
        "batch",
    ),
    Mutant(
        "app/transactions/endings.py",
        "changes += [end.ending.plan.record, *end.offsets.changes]",
        "changes += [end.ending.plan.record]",
        f"{_TRANSACTIONS}/test_transaction_histories.py",
        "when_the_broker_crashes",
    ),
    Mutant(
        "app/transactions/endings.py",
        "            end.offsets.apply()\n",
        "",
        f"{_TRANSACTIONS}/test_coordinator.py",
        "offsets_at_once",
    ),
    Mutant(
        "app/transactions/endings.py",
        "transaction.producer_id == producer_id and transaction.first_offset < partition.end_offset",
        "transaction.producer_id == producer_id",
        f"{_TRANSACTIONS}/test_transaction_histories.py",
        "when_the_broker_crashes",
    ),
    Mutant(
        "app/transactions/endings.py",
        "                self._unmarked[outcome.transactional_id] = outcome\n",
        "",
        f"{_TRANSACTIONS}/test_coordinator.py",
        "no_room",
    ),
    Mutant(
        "app/transactions/recovery.py",
        "            transaction.adopt(opened.topic_partition, now=now)\n",
        "",
        f"{_TRANSACTIONS}/test_transaction_histories.py",
        "when_the_broker_crashes",
    ),
    Mutant(
        "app/transactions/recovery.py",
        "    broker.append_markers(_orphans(broker, table, coordinator_epoch=groups.epoch, now=now))\n",
        "    _orphans(broker, table, coordinator_epoch=groups.epoch, now=now)\n",
        f"{_TRANSACTIONS}/test_coordinator.py",
        "nobody_can_end",
    ),
    Mutant(
        "app/transactions/transaction.py",
        "return self.epoch >= _LAST_EPOCH or self.epochs_may_repeat\n",
        "return self.epoch >= _LAST_EPOCH\n",
        f"{_TRANSACTIONS}/test_transaction.py",
        "another_history",
    ),
    Mutant(
        "app/cluster/postgres/transactions.py",
        "epochs_may_repeat=row[-1]",
        "epochs_may_repeat=False",
        "tests/integration/shared_storage/test_failover.py",
        "gives_no_epoch",
    ),
    Mutant(
        "app/transactions/timeouts.py",
        "and transaction.deadline_ms < now.monotonic_ms",
        "and transaction.deadline_ms + 60_000 < now.monotonic_ms",
        f"{_TRANSACTIONS}/test_coordinator.py",
        "too_long",
    ),
    Mutant(
        "app/groups/base/pending_offsets.py",
        "                del by_producer[producer_id]\n            if not",
        "                by_producer.clear()\n            if not",
        f"{_GROUPS}/test_transactional_offsets.py",
    ),
    # ── leases of a cluster ──
    Mutant(
        "app/groups/shard_lease.py",
        "if not self._cluster.is_held(self._lease):",
        "if False:",
        f"{_GROUPS}/test_shard_lease.py",
    ),
    Mutant(
        "app/broker/lease_keeper.py",
        "            await self._end(held)\n            await self._run(lambda: self._membership.release(name, member))\n\n        self._call(held, give)",
        "            await self._run(lambda: self._membership.release(name, member))\n            await self._end(held)\n\n        self._call(held, give)",
        f"{_BROKER}/test_lease_keeper.py",
    ),
    Mutant(
        "app/broker/lease_keeper.py",
        "return self._clock.monotonic_ms() < self._beat_ms + self._certain_ms",
        "return True",
        f"{_BROKER}/test_lease_keeper.py",
    ),
    Mutant(
        "app/broker/lease_keeper.py",
        "held.until_ms - self._certain_ms < self._alive_since_ms",
        "False",
        f"{_BROKER}/test_lease_keeper.py",
    ),
    Mutant(
        "app/broker/lease_keeper.py",
        "now_ms - given_ms < _GIVEN_AGAIN_MS",
        "False",
        f"{_BROKER}/test_lease_keeper.py",
    ),
    Mutant(
        "app/broker/lease_keeper.py",
        "            if held.until_ms is None:\n                # Given up meanwhile",
        "            if False:\n                # Given up meanwhile",
        f"{_BROKER}/test_lease_keeper.py",
    ),
    Mutant(
        "app/storage/shared/upkeep_rules.py",
        "return silent.looked_s is None or silent.silent_s >= 2 * silent.looked_s",
        "return silent.looked_s is None",
        "tests/unit/storage/shared/test_upkeep.py",
    ),
)
