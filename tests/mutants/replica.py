"""The mutants of the replica: mistakes that its simulation must notice, or a test of what is rare in it."""

from __future__ import annotations

from .table import Mutant

_REPLICA = "app/storage/replica"
_TESTS = "tests/unit/storage/replica"
_SIMULATION, _UPLOADS = f"{_TESTS}/test_simulation.py", f"{_TESTS}/test_uploads.py"


def _mutant(
    module: str, before: str, after: str, tests: str = _SIMULATION, only: str = "no_promise"
) -> Mutant:
    return Mutant(f"{_REPLICA}/{module}.py", before, after, tests, only)


REPLICA_MUTANTS = (
    # ── a cut, and what it names ──
    # The cut is written before its data.
    _mutant(
        "bucket",
        '        await self.persist(f"writing {key}", lambda: self.store.put(key, data))\n',
        '        asyncio.ensure_future(self.persist(f"writing {key}", lambda: self.store.put(key, data)))\n',
    ),
    # The logs are marked in a turn after that of the stores …
    _mutant(
        "replicator",
        "        for log in self._changes.take():\n            marks[log] = self._mark_of(log)\n"
        "        self.cover.marked()\n        begun = [store.begin() for store in self._stores]\n",
        "        begun = [store.begin() for store in self._stores]\n        await asyncio.sleep(0.01)\n"
        "        for log in self._changes.take():\n            marks[log] = self._mark_of(log)\n        self.cover.marked()\n",
    ),
    # … or in a turn before it.
    _mutant(
        "replicator",
        "        begun = [store.begin() for store in self._stores]\n",
        "        await asyncio.sleep(0.01)\n        begun = [store.begin() for store in self._stores]\n",
    ),
    # A segment that has vanished is ignored.
    _mutant(
        "replicator",
        "            await self._segments.upload(marks.logs)\n",
        "            with suppress(SegmentVanished):\n                await self._segments.upload(marks.logs)\n",
    ),
    # What was read is perhaps that of another topic, which has the paths of a deleted one.
    _mutant(
        "segment_uploads",
        "        self._check_open((one.log, one.piece.segment) for one in planned)\n",
        "",
        _UPLOADS,
        "path_of_a_deleted",
    ),
    _mutant(
        "segment_uploads",
        "            if segment.is_cut or not self._is_open(log):\n",
        "            if not self._is_open(log):\n",
        _UPLOADS,
        "cut_back_meanwhile",
    ),
    # After an upload that failed, the logs count as unchanged …
    _mutant(
        "replicator",
        "            self._changes.put_back([*(mark.log for mark in marks.logs), *marks.gone])\n",
        "",
    ),
    # … or the stores.
    _mutant(
        "replicator",
        "            for store in marks.stores:\n                store.abandon()\n            raise\n",
        "            raise\n",
    ),
    # A store is given up while another begins.
    _mutant(
        "replicator",
        "        has_changed = await asyncio.gather(*begun, return_exceptions=True)\n",
        "        has_changed: list[bool | BaseException] = []\n"
        "        for one in begun:\n"
        "            try:\n"
        "                has_changed.append(await one)\n"
        "            except sqlite3.Error as error:\n"
        "                has_changed.append(error)\n"
        "                break\n",
        _UPLOADS,
        "begins_after_another",
    ),
    # Small runs replace one too many.
    _mutant(
        "segment_uploads",
        "        return _Planned(log, piece, kept)\n",
        "        return _Planned(log, piece, max(0, kept - 1))\n",
    ),
    # An upload that fails keeps its place.
    _mutant(
        "segment_uploads",
        "        self._slots.release()\n",
        "        if not _upload.cancelled() and _upload.exception() is None:\n            self._slots.release()\n",
        _UPLOADS,
        "before_they_began",
    ),
    # The last chunk of a store is compared as far as the new one goes.
    _mutant(
        "store_images",
        "        end = start + _COMPARED_BYTES\n",
        "        end = min(start + _COMPARED_BYTES, len(new))\n",
        _UPLOADS,
        "become_shorter",
    ),
    # A run ends within a batch.
    _mutant(
        "segment_bytes",
        "        if bytes_max < size <= length:\n",
        "        if bytes_max < size < length:\n",
        _UPLOADS,
        "within_a_batch",
    ),
    # A sealed segment is queued again while it is written.
    _mutant(
        "segment_uploads",
        "            log, segment = self._sealed.popleft()\n",
        "            log, segment = self._sealed.popleft()\n            self._is_queued.discard(segment)\n",
        _UPLOADS,
        "written_once",
    ),
    # ── starts ──
    # Runs of the bucket count as equal without a comparison.
    _mutant(
        "segment_bytes",
        "            if _crc(file, ends[number] - run.length, run.length) != run.crc:\n",
        "            if False:\n",
    ),
    # A segment that went between two others stays.
    _mutant(
        "state",
        "for one in (changed[0], *gone))",
        "for one in changed[:1])",
        f"{_TESTS}/test_state.py",
        "between_two_others",
    ),
    # What was deleted while no cut was written stays.
    _mutant(
        "replicator",
        "            for key in [key for key in known if key not in here]:\n",
        "            for key in [key for key in known if key in ()]:\n",
    ),
    # ── one chain ──
    # The PUT of a cut replaces.
    _mutant(
        "chain",
        "        if await self._store.create(cut_key(sequence), data):\n            return\n",
        "        await self._store.put(cut_key(sequence), data)\n",
    ),
    # A start does not take its generation before it uploads.
    _mutant(
        "generations",
        "        if not sequences:\n            return []\n",
        "        if True:\n            return sequences\n",
    ),
    # A broker whose cut was not accepted writes the next one.
    _mutant("chain", "        if written != data:\n", "        if False:\n"),
    # The time of cuts follows a clock that was put back.
    _mutant(
        "replicator",
        "            time_ms=max(marks.time_ms, 0 if newest is None else newest.time_ms),\n",
        "            time_ms=marks.time_ms,\n",
    ),
    # ── retention ──
    # It forgets the base.
    _mutant(
        "retention",
        "if sequence < cut.base]",
        "if sequence < cut.sequence]",
    ),
    # Objects go when they are unused, and not after the retention.
    _mutant("retention", " if since_ms <= cut.time_ms]", "]"),
    # The clock has jumped ahead.
    _mutant("replicator", "self._patient_clock.now_ms()", "self._clock.now_ms()"),
    # Nothing is too old, but cuts have the same time.
    _mutant(
        "retention",
        "            self._goes_back_to(cut)\n            return []\n",
        "            assert cut is not None\n",
    ),
    # Another broker has deleted old cuts, too.
    _mutant(
        "moments",
        "except (CorruptCut, ObjectNotFound):\n            return None",
        "except CorruptCut:\n            return None",
        _UPLOADS,
        "do_not_end_a_replica",
    ),
    # A cut that is damaged now was the oldest one.
    _mutant(
        "retention",
        "max(self.oldest_ms, cut.time_ms)",
        "cut.time_ms",
        _UPLOADS,
        "does_not_move_the_oldest_moment_back",
    ),
    # A sweep takes what another broker has uploaded for its first cut.
    _mutant("retention", "                if strays:\n                    await self.check_newest()\n", ""),
    # Nothing is swept.
    _mutant("retention", "                await self._delete(strays)\n", ""),
)
