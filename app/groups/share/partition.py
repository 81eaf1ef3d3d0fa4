"""The delivery states of a partition's records for a share group (KIP-932).

ADR-0044 has the decisions.

Every record is available, acquired by a member, or final. ``SharePartition`` keeps these
states for the offsets from its start to its end: all before the start are final, and no
offset from the end on was ever delivered. Neighbouring offsets share a *span*, and a
span is split when only some of its offsets change::

    offset    0          100       140        180          220
              final      | acquired | available | acquired  |   never delivered
                         start                              end

An acknowledgement must be stored before it is answered, so it takes two steps.
``acknowledge`` returns a *transition*: its records have a target state and stay
acquired. The caller stores ``snapshot``, in which they have their target, and then
calls ``complete``, which applies the target or, if it was not stored, drops it.

Acquiring is not stored: after a restart acquired records are available. Lock ends and
released members take effect at once, stored or not.

A record that is given up, because a member rejects it or its last delivery has failed,
is *archiving* if the group has a dead-letter topic: no member gets it, and it holds the start
until ``archive`` says that its dead letter is written (KIP-1191).

Offsets without a record (markers, aborted transactions, holes that compaction left) are
archived when a read passes them, or when the member says that there is none.

Times are in ms on any monotonic clock. Nothing here does I/O or reads a clock. The module is
longer than others, because every method keeps the rules about spans that all rely on.

It is one file, however long, because it is one state machine, which is easier to check when it is read as a
whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ...errors import InvalidRecordState, InvalidRequest
from ..base.share_state import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRange,
    OffsetRange,
    RecordState,
    ShareLimits,
    ShareState,
    StoredRange,
)

_AVAILABLE, _ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
_ACKNOWLEDGED, _ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
_ARCHIVING = RecordState.ARCHIVING
_FINAL = (_ACKNOWLEDGED, _ARCHIVED)
# Each delivery from the throttled count on is at most a quarter of the one before.
_THROTTLE_BITS = 2


@dataclass(slots=True, eq=False)
class _Span:
    """Neighbouring offsets with the same state; ``target`` is a final or available state to be stored."""

    first: int
    last: int
    state: RecordState
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: int = 0
    target: RecordState | None = None

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        return self.state is _AVAILABLE

    @property
    def stored_state(self) -> RecordState:
        state = self.state if self.target is None else self.target
        return _AVAILABLE if state is _ACQUIRED else state

    @property
    def stored_count(self) -> int:
        """A delivery counts once the member has let go: a restart in between is not its failure."""
        is_held = self.state is _ACQUIRED and self.target is None
        return self.delivery_count - 1 if is_held else self.delivery_count


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """Acknowledged records whose new state is not stored yet."""

    spans: Sequence[_Span]

    def count(self, target: RecordState) -> int:
        """Return how many records are to get a state; zero after ``complete``."""
        return sum(span.size for span in self.spans if span.target is target)


_first_of = attrgetter("first")


class SharePartition:
    """See the module. ``group`` names the group in errors."""

    def __init__(self, group: str, state: ShareState) -> None:
        self.group = group
        self.start_offset = state.start_offset
        self.end_offset = state.start_offset
        self.state_epoch = state.state_epoch
        self.log_start_offset = 0
        self._spans: list[_Span] = []
        # How many records each member holds, and how many are in each state that is not final.
        self._held: dict[str, int] = {}
        self._counts = dict.fromkeys((_AVAILABLE, _ACQUIRED, _ARCHIVING), 0)
        self._extend(state.ranges)

    def _extend(self, ranges: Iterable[StoredRange]) -> None:
        """Go on with stored states, which follow the end."""
        for stored in ranges:
            if stored.first > self.end_offset:
                self._append(stored.first - 1, _AVAILABLE)
            self._append(stored.last, stored.state)
            self._spans[-1].delivery_count = stored.delivery_count
        self._advance()

    # ── looking ──

    def fetch_offset(self, limits: ShareLimits) -> int | None:
        """Return the offset from which a member should read; None if nothing may be acquired now."""
        if self._counts[_AVAILABLE]:
            return next(span.first for span in self._spans if span.is_free)
        return self.end_offset if self.unfinished_count < limits.locks else None

    @property
    def unfinished_count(self) -> int:
        """The number of offsets before the end that are not final."""
        return sum(self._counts.values())

    @property
    def acquired_count(self) -> int:
        return self._counts[_ACQUIRED]

    @property
    def finished_count(self) -> int:
        """The number of offsets after the start that are final."""
        return self.end_offset - self.start_offset - self.unfinished_count

    def next_deadline_ms(self) -> int | None:
        """Return when the next lock ends; locks of records in a transition do not end."""
        return min(
            (span.deadline_ms for span in self._spans if span.state is _ACQUIRED and span.target is None),
            default=None,
        )

    def is_holder(self, member_id: str) -> bool:
        """True if a member holds records, those in a transition included."""
        return member_id in self._held

    def held_by(self, member_id: str) -> tuple[list[AcquiredRange], int]:
        """Return what a member holds, and when the first of its locks ends.

        Records in a transition do not count.
        """
        held: list[AcquiredRange] = []
        deadline_ms = 0
        if not self.is_holder(member_id):
            return held, deadline_ms
        for span in self._spans:
            if span.state is _ACQUIRED and span.member_id == member_id and span.target is None:
                held.append(AcquiredRange(span.first, span.last, span.delivery_count))
                deadline_ms = min(deadline_ms or span.deadline_ms, span.deadline_ms)
        return held, deadline_ms

    def check(self, member_id: str, acknowledgements: Sequence[Acknowledgement], *, now_ms: int) -> None:
        """Raise what ``acknowledge`` would raise."""
        self._checked(member_id, acknowledgements, now_ms=now_ms, may_renew=True)

    def ranges(self) -> Iterator[tuple[StoredRange, str]]:
        """Yield the ranges as they are now, and the member that holds each."""
        for span in self._spans:
            yield StoredRange(span.first, span.last, span.state, span.delivery_count), span.member_id

    def snapshot(self) -> ShareState:
        """Return what must be stored, as if all transitions were complete."""
        ranges: list[StoredRange] = []
        start = self.start_offset
        for span in self._spans:
            state = span.stored_state
            if state in _FINAL and not ranges and span.first == start:
                start = span.last + 1
                continue
            count = 0 if state in _FINAL else span.stored_count
            before = ranges[-1] if ranges else None
            if before is not None and before.state is state and before.delivery_count == count:
                ranges[-1] = before._replace(last=span.last)
            elif before is not None and before.state in _FINAL and state in _FINAL:
                ranges[-1] = before._replace(last=span.last, state=_ARCHIVED)
            else:
                ranges.append(StoredRange(span.first, span.last, state, count))
        while ranges and ranges[-1].state is _AVAILABLE and not ranges[-1].delivery_count:
            ranges.pop()
        return ShareState(start_offset=start, state_epoch=self.state_epoch, ranges=tuple(ranges))

    # ── acquiring ──

    def acquire(
        self,
        member_id: str,
        *,
        read_from: int,
        read_to: int,
        batches: Sequence[OffsetRange],
        now_ms: int,
        limits: ShareLimits,
        records_max: int,
        is_strict: bool,
    ) -> list[AcquiredRange]:
        """Give the available records of a read to a member; they are locked until ``now_ms + lock_ms``.

        The read had all offsets from ``read_from`` to before ``read_to``. ``batches`` are those
        of them that have records, one range per batch, ascending; the others are archived.
        At most ``records_max`` are acquired, or with ``is_strict`` false, up to the end of the
        batch in which that many are reached. Ranges returned ascend.
        """
        if read_from > self.end_offset:
            return []
        taking = _Taking(
            member_id=member_id,
            deadline_ms=now_ms + limits.lock_ms,
            limits=limits,
            records_max=max(0, records_max),
            new_room=max(0, limits.locks - self.unfinished_count),
            is_strict=is_strict,
        )
        position = read_from
        for batch in batches:
            self._archive_hole(position, batch.first - 1)
            if taking.is_full or not self._acquire_batch(batch, taking):
                break
            position = batch.last + 1
        else:
            self._archive_hole(position, read_to - 1)
        # The ends of batches have cut spans that are not acquired.
        self._merge(min(read_from, batches[0].first) if batches else read_from, self.end_offset)
        self._advance()
        return taking.taken

    def _acquire_batch(self, batch: OffsetRange, taking: _Taking) -> bool:
        """Acquire what is available in a batch; return False if some of it has to wait."""
        first, last = max(batch.first, self.start_offset), min(batch.last, self.end_offset - 1)
        for span in self._split(first, last):
            if not span.is_free:
                continue
            size, room = span.size, taking.room_for(span.delivery_count, span.size)
            if room <= 0:
                return False
            is_throttled = span.delivery_count >= taking.limits.throttled_from
            self._lock(self._split(span.first, span.first + room - 1)[0], taking)
            if room < size or is_throttled:
                return False
        first = max(batch.first, self.end_offset)
        if first > batch.last:
            return True
        size = min(taking.room_for(0, batch.last - first + 1), taking.new_room)
        if size > 0:
            self._append(first + size - 1, _AVAILABLE)
            self._lock(self._spans[-1], taking)
            taking.new_room -= size
        return self.end_offset > batch.last

    def _lock(self, span: _Span, taking: _Taking) -> None:
        self._turn(span, _ACQUIRED)
        span.delivery_count += 1
        span.member_id = taking.member_id
        span.deadline_ms = taking.deadline_ms
        self._held[span.member_id] = self._held.get(span.member_id, 0) + span.size
        taking.took(span)

    def _let_go(self, span: _Span) -> None:
        left = self._held[span.member_id] - span.size
        if left:
            self._held[span.member_id] = left
        else:
            del self._held[span.member_id]
        span.member_id = ""

    def _archive_hole(self, first: int, last: int) -> None:
        """Archive the offsets from ``first`` to ``last``, which have no records.

        They are available, or new.
        """
        first = max(first, self.start_offset)
        if first > last:
            return
        for span in self._split(first, min(last, self.end_offset - 1)):
            if span.is_free:
                self._turn(span, _ARCHIVED)
        if last >= self.end_offset:
            self._append(last, _ARCHIVED)
        self._merge(first, last)

    # ── acknowledging ──

    def acknowledge(
        self,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        *,
        now_ms: int,
        limits: ShareLimits,
        may_renew: bool = True,
    ) -> Transition:
        """Take what a member says of records that it holds, all of it or nothing.

        Offsets before the start are ignored. RENEW takes effect at once, and is not part of the
        transition, which may be empty.

        Raises:
            InvalidRequest: the ranges overlap or descend, or have impossible offsets or types.
            InvalidRecordState: the member does not hold all of the records.
        """
        pieces = self._checked(member_id, acknowledgements, now_ms=now_ms, may_renew=may_renew)
        changed: list[_Span] = []
        for first, last, kind in pieces:
            for span in self._split(first, last):
                if kind is AcknowledgeType.RENEW:
                    span.deadline_ms = now_ms + limits.lock_ms
                    continue
                span.target = self._target(span, kind, limits)
                changed.append(span)
        return Transition(changed)

    def _checked(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], *, now_ms: int, may_renew: bool
    ) -> list[tuple[int, int, AcknowledgeType]]:
        """Return the acknowledged offsets from the start on, cut where the type changes."""
        pieces: list[tuple[int, int, AcknowledgeType]] = []
        previous = -1
        for acknowledgement in acknowledgements:
            first, last, types = acknowledgement.first, acknowledgement.last, acknowledgement.types
            if not previous < first <= last < self.end_offset:
                raise InvalidRequest(
                    f"acknowledged offsets must ascend, not overlap, and end before {self.end_offset}; "
                    f"{first} to {last} follows {previous}"
                )
            if len(types) != 1 and len(types) != last - first + 1:
                raise InvalidRequest(
                    f"offsets {first} to {last} need one acknowledge type, or one per offset, not {len(types)}"
                )
            pieces += self._pieces(first, last, types)
            previous = last
        for first, last, kind in pieces:
            is_refused = kind is AcknowledgeType.RENEW and not may_renew
            if is_refused or not all(
                span.state is _ACQUIRED
                and span.member_id == member_id
                and span.target is None
                and span.deadline_ms > now_ms
                for span in self._between(first, last)
            ):
                raise InvalidRecordState(self.group, first, last)
        return pieces

    def _pieces(
        self, first: int, last: int, types: Sequence[int]
    ) -> Iterator[tuple[int, int, AcknowledgeType]]:
        try:
            kinds = [AcknowledgeType(kind) for kind in types]
        except ValueError as error:
            raise InvalidRequest(
                "an acknowledge type is a number from 0 to 4: gap, accept, release, reject, renew"
            ) from error
        start = self.start_offset
        if len(kinds) == 1:
            if last >= start:
                yield max(first, start), last, kinds[0]
            return
        begin = max(0, start - first)
        for index in range(begin, len(kinds)):
            if index + 1 == len(kinds) or kinds[index + 1] is not kinds[index]:
                yield first + begin, first + index, kinds[index]
                begin = index + 1

    def _target(self, span: _Span, kind: AcknowledgeType, limits: ShareLimits) -> RecordState:
        if kind is AcknowledgeType.ACCEPT:
            return _ACKNOWLEDGED
        if kind is AcknowledgeType.RELEASE:
            return self._released_state(span, limits)
        return _given_up(limits) if kind is AcknowledgeType.REJECT else _ARCHIVED

    def _released_state(self, span: _Span, limits: ShareLimits) -> RecordState:
        if span.last < self.log_start_offset:
            return _ARCHIVED
        return _given_up(limits) if span.delivery_count >= limits.delivery_count else _AVAILABLE

    def complete(self, transition: Transition, *, is_stored: bool) -> None:
        """Apply a transition that is stored; drop one that is not, so that its records stay acquired."""
        for span in transition.spans:
            assert span.target is not None
            # A reset may have forgotten it.
            if is_stored and span.member_id:
                self._turn(span, span.target)
                self._let_go(span)
            span.target = None
        for span in transition.spans:
            self._merge(span.first, span.last)
        self._archive_deleted()

    # ── dead letters ──

    def archiving(self, records_max: int) -> list[StoredRange]:
        """Return up to ``records_max`` records that wait for their dead letters."""
        waiting: list[StoredRange] = []
        for span in self._spans:
            if span.state is _ARCHIVING and records_max > 0:
                last = min(span.last, span.first + records_max - 1)
                waiting.append(StoredRange(span.first, last, _ARCHIVING, span.delivery_count))
                records_max -= last - span.first + 1
        return waiting

    def archive(self, written: Sequence[StoredRange]) -> None:
        """Archive records of ``archiving`` whose dead letters are written."""
        for stored in written:
            for span in self._split(
                max(stored.first, self.start_offset), min(stored.last, self.end_offset - 1)
            ):
                if span.state is _ARCHIVING:
                    self._turn(span, _ARCHIVED)
            self._merge(stored.first, stored.last)
        self._advance()

    # ── what ends without the member ──

    def expire(self, now_ms: int, limits: ShareLimits) -> int:
        """Take back records whose lock has ended; return how many."""
        return self._take_back(
            [span for span in self._spans if span.state is _ACQUIRED and span.deadline_ms <= now_ms], limits
        )

    def release_member(self, member_id: str, limits: ShareLimits, *, is_delivered: bool = True) -> int:
        """Take back all records of a member, including those whose transition fails later; return how many at once.

        With ``is_delivered`` false their last delivery does not count.
        """
        held = [span for span in self._spans if span.state is _ACQUIRED and span.member_id == member_id]
        for span in held:
            span.deadline_ms = -1
            if not is_delivered and span.target is None:
                span.delivery_count -= 1
        return self._take_back(held, limits)

    def _take_back(self, held: Sequence[_Span], limits: ShareLimits) -> int:
        taken = [span for span in held if span.target is None]
        count = sum(span.size for span in taken)
        for span in taken:
            self._turn(span, self._released_state(span, limits))
            self._let_go(span)
        for span in taken:
            self._merge(span.first, span.last)
        self._archive_deleted()
        return count

    def trim(self, log_start_offset: int) -> bool:
        """Archive available records that the log has deleted; return whether the start moved.

        Acquired ones are archived when they are released.
        """
        before = self.start_offset
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        if self.end_offset < self.log_start_offset:
            self._append(self.log_start_offset - 1, _ARCHIVED)
            self._merge(self.end_offset - 1, self.end_offset - 1)
        self._archive_deleted()
        return self.start_offset != before

    def reset(self, start_offset: int) -> None:
        """Begin at ``start_offset`` with a new state epoch; all states are forgotten."""
        self.start_offset = self.end_offset = start_offset
        self.log_start_offset = 0
        self.state_epoch += 1
        for span in self._spans:
            # Its transition may be under way.
            span.member_id = ""
        self._counts = dict.fromkeys(self._counts, 0)
        self._spans.clear()
        self._held.clear()

    def cut(self, end_offset: int) -> None:
        """Forget the states from ``end_offset`` on, because the log was cut back to it.

        Locks end, too: records that members hold are available again.
        """
        state = self.snapshot()
        self.reset(min(state.start_offset, end_offset))
        self._extend(
            kept._replace(last=min(kept.last, end_offset - 1))
            for kept in state.ranges
            if kept.first < end_offset
        )

    # ── spans ──

    def _append(self, last: int, state: RecordState) -> None:
        """Extend the end to after ``last`` with a span of its own."""
        span = _Span(self.end_offset, last, state)
        self._spans.append(span)
        if state in self._counts:
            self._counts[state] += span.size
        self.end_offset = last + 1

    def _turn(self, span: _Span, state: RecordState) -> None:
        """Give a span another state."""
        if span.state in self._counts:
            self._counts[span.state] -= span.size
        if state in self._counts:
            self._counts[state] += span.size
        span.state = state

    def _index(self, offset: int) -> int:
        """Return the index of the span that contains ``offset``.

        The offset is from the start to the end.
        """
        return bisect_right(self._spans, offset, key=_first_of) - 1

    def _between(self, first: int, last: int) -> Iterator[_Span]:
        """Yield the spans that have offsets from ``first`` to ``last``."""
        index = self._index(first) if first <= last else len(self._spans)
        while index < len(self._spans) and self._spans[index].first <= last:
            yield self._spans[index]
            index += 1

    def _split(self, first: int, last: int) -> list[_Span]:
        """Split spans at both ends, and return those from ``first`` to ``last``.

        Spans in a transition are never split, so that it keeps its spans.
        """
        if first > last:
            return []
        self._cut(first)
        self._cut(last + 1)
        return [span for span in self._between(first, last) if span.first >= first and span.last <= last]

    def _cut(self, offset: int) -> None:
        """Let a span begin at ``offset``, unless it would split a transition."""
        if not self.start_offset < offset < self.end_offset:
            return
        index = self._index(offset)
        span = self._spans[index]
        if span.first == offset or span.target is not None:
            return
        rest = _Span(
            offset, span.last, span.state, span.delivery_count, span.member_id, span.deadline_ms, span.target
        )
        span.last = offset - 1
        self._spans.insert(index + 1, rest)

    def _merge(self, first: int, last: int) -> None:
        """Join spans of one state at and beside the offsets from ``first`` to ``last``."""
        if not self._spans:
            return
        begin = max(0, self._index(max(first, self._spans[0].first)) - 1)
        end = begin
        merged: list[_Span] = []
        while end < len(self._spans) and self._spans[end].first <= last + 1:
            span = self._spans[end]
            if merged and _may_merge(merged[-1], span):
                merged[-1].last = span.last
                if merged[-1].state is not span.state:
                    merged[-1].state = _ARCHIVED
            else:
                merged.append(span)
            end += 1
        self._spans[begin:end] = merged

    def _archive_deleted(self) -> None:
        """Archive available offsets before the start of the log, then move the start."""
        last = min(self.log_start_offset, self.end_offset) - 1
        if last >= self.start_offset:
            for span in self._split(self.start_offset, last):
                if span.is_free:
                    self._turn(span, _ARCHIVED)
            self._merge(self.start_offset, last)
        self._advance()

    def _advance(self) -> None:
        """Move the start past final records."""
        count = 0
        for span in self._spans:
            if span.state not in _FINAL:
                break
            count += 1
        del self._spans[:count]
        self.start_offset = self._spans[0].first if self._spans else self.end_offset


def _may_merge(left: _Span, right: _Span) -> bool:
    if left.state in _FINAL:
        # Nothing depends on why a record is final, so a long window after one slow record stays short.
        return right.state in _FINAL
    is_same = left.state is right.state and left.delivery_count == right.delivery_count
    return is_same and left.state in (_AVAILABLE, _ARCHIVING)


def _given_up(limits: ShareLimits) -> RecordState:
    return _ARCHIVING if limits.has_dead_letters else _ARCHIVED


@dataclass(slots=True, kw_only=True)
class _Taking:
    """The remaining budget of one fetch.

    ``new_room``: of offsets that were never delivered.
    """

    member_id: str
    deadline_ms: int
    limits: ShareLimits
    records_max: int
    new_room: int
    is_strict: bool
    taken: list[AcquiredRange] = field(default_factory=list[AcquiredRange])
    count: int = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.records_max

    def room_for(self, delivery_count: int, size: int) -> int:
        """Return how many of ``size`` records may be acquired now.

        They have been delivered equally often before.

        Records that several deliveries have failed come alone and in smaller and smaller pieces,
        the last time one by one, so that a record that cannot be handled spoils no others.
        """
        limits = self.limits
        if delivery_count >= limits.throttled_from:
            if self.taken:
                return 0
            steps = delivery_count - limits.throttled_from + 1
            is_last = delivery_count >= limits.delivery_count - 1
            size = min(size, 1 if is_last else max(1, self.records_max >> _THROTTLE_BITS * steps))
        return min(size, self.records_max - self.count) if self.is_strict else size

    def took(self, span: _Span) -> None:
        self.count += span.size
        before = self.taken[-1] if self.taken else None
        if before is not None and (before.last + 1, before.delivery_count) == (
            span.first,
            span.delivery_count,
        ):
            self.taken[-1] = before._replace(last=span.last)
        else:
            self.taken.append(AcquiredRange(span.first, span.last, span.delivery_count))
