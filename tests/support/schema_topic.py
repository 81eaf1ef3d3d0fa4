"""A registry without a broker: the decisions of ``app.registry`` over a list of records.

Its schemas are letters, the fields of a record: ``ab c``. White space does not count in the canonical form, nor the
order in the normalized one. A schema reads data of another one that has all its letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stele.schemas.definitions import Reference

from app.registry import decisions, registrations
from app.registry.contents import Content, digest
from app.registry.definitions import Json
from app.registry.names import Name, scope
from app.registry.registrations import Comparisons, Missing, Proposal, Registration
from app.registry.state import State, Version
from app.registry.topic_format import Record, Unreadable, read_key, read_value


class _Decision(Protocol):
    @property
    def records(self) -> list[Record]: ...


_T = TypeVar("_T")
_D = TypeVar("_D", bound=_Decision)


def canonical(text: str) -> str:
    return "".join(text.split())


def normalized(text: str) -> str:
    return "".join(sorted(canonical(text)))


def reads(reader: str, writer: str) -> bool:
    return set(canonical(reader)) <= set(canonical(writer))


def fold(records: Sequence[Record]) -> State:
    """Return the state of records from offset 0 on."""
    state = State()
    for offset, record in enumerate(records):
        apply(state, record, offset)
    return state


def apply(state: State, record: Record, offset: int) -> None:
    """Apply a record as the broker reads it; ignore what cannot be read."""
    try:
        key = read_key(record.key)
        value = read_value(key, record.value, is_canonical=record.is_canonical)
        state.apply(key, value, raw_key=record.key, timestamp_ms=1000 + offset, offset=offset)
    except Unreadable:
        pass
    state.position = offset + 1


def compacted(records: Sequence[Record], *, drops_nulls: bool) -> list[Record]:
    """Return what compaction leaves: the last record of each key, nulls only for a while."""
    last = {record.key: record for record in records}
    return [
        record
        for record in records
        if last[record.key] is record and not (drops_nulls and record.value is None)
    ]


class SchemaTopic:
    """A topic and its state."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.records = list(records)
        self.state = fold(self.records)

    def restart(self) -> None:
        self.state = fold(self.records)

    def compact(self, *, drops_nulls: bool) -> None:
        self.records = compacted(self.records, drops_nulls=drops_nulls)

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            apply(self.state, record, self.state.position)
            self.records.append(record)

    def change(self, decide: Callable[[State], _D]) -> _D:
        decision = decide(self.state)
        self.append(decision.records)
        return decision

    def register(
        self,
        subject: str,
        text: str,
        *,
        normalize: bool = False,
        force: bool = False,
        references: Sequence[Reference] = (),
        metadata: Json | None = None,
        rule_set: Json | None = None,
        schema_type: str = "AVRO",
        schema_id: int | None = None,
        version: int | None = None,
    ) -> Version:
        proposal = self.proposal(
            subject,
            text,
            normalize=normalize,
            references=references,
            metadata=metadata,
            rule_set=rule_set,
            schema_type=schema_type,
            schema_id=schema_id,
            version=version,
        )
        comparisons = Comparisons()

        def decide(state: State) -> Registration:
            return self.settled(
                lambda: registrations.register(state, proposal, comparisons, force=force), text, comparisons
            )

        registration = self.change(decide)
        found = self.state.version(Name.parse(subject).qualified, registration.number)
        assert found is not None
        return found

    def look_up(
        self,
        subject: str,
        text: str,
        *,
        deleted: bool = False,
        normalize: bool = False,
        references: Sequence[Reference] = (),
        metadata: Json | None = None,
    ) -> Version:
        proposal = self.proposal(subject, text, normalize=normalize, references=references, metadata=metadata)
        return self.settled(
            lambda: registrations.look_up(self.state, proposal, deleted=deleted), text, Comparisons()
        )

    def check(self, subject: str, text: str, version: str | int | None = None) -> list[str]:
        proposal, comparisons = self.proposal(subject, text), Comparisons()

        def check() -> list[str] | Missing:
            if version is None:
                content = registrations.proposed_content(self.state, proposal, is_verbatim=False)
                return registrations.incompatibilities(self.state, proposal, content, comparisons)
            number = decisions.version_number(version)
            return registrations.check_version(self.state, proposal, number, comparisons)

        return self.settled(check, text, comparisons)

    def proposal(
        self,
        subject: str,
        text: str,
        *,
        normalize: bool = False,
        references: Sequence[Reference] = (),
        metadata: Json | None = None,
        rule_set: Json | None = None,
        schema_type: str = "AVRO",
        schema_id: int | None = None,
        version: int | None = None,
    ) -> Proposal:
        name = Name.parse(subject)
        resolved = registrations.resolved_references(self.state, name, references, is_normalized=normalize)
        content = Content(
            schema_type=schema_type,
            text=normalized(text) if normalize else canonical(text),
            references=resolved,
        )
        content.canonical, content.normalized = digest(canonical(text)), digest(normalized(text))
        return Proposal(
            name=name,
            content=content,
            is_normalized=normalize,
            metadata=metadata,
            rule_set=rule_set,
            id=schema_id,
            version=version,
        )

    def settled(self, decide: Callable[[], _T | Missing], text: str, comparisons: Comparisons) -> _T:
        """Decide, and find out what the decision lacks until it lacks nothing."""
        while True:
            outcome = decide()
            if not isinstance(outcome, Missing):
                return outcome
            assert outcome.digests or outcome.comparisons
            for version in outcome.digests:
                content = version.content
                assert content.canonical is None or content.normalized is None
                content.canonical = digest(canonical(content.text))
                content.normalized = digest(normalized(content.text))
            for version, rule in outcome.comparisons:
                old = version.content.text
                problems: list[str] = []
                if rule.level in ("BACKWARD", "FULL") and not reads(text, old):
                    problems.append("does not read old data")
                if rule.level in ("FORWARD", "FULL") and not reads(old, text):
                    problems.append("is not read by the old schema")
                comparisons.problems[version.content, rule] = tuple(problems)

    def delete_version(self, subject: str, version: str | int, *, permanent: bool = False) -> int:
        name, number = Name.parse(subject), decisions.version_number(version)
        return self.change(
            lambda state: decisions.delete_version(state, name, number, permanent=permanent)
        ).number

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        name = Name.parse(subject)
        return self.change(lambda state: decisions.delete_subject(state, name, permanent=permanent)).numbers

    def set_config(self, subject: str | None, **changes: object) -> Json:
        return self.change(lambda state: decisions.set_config(state, scope(subject), changes)).config

    def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> str:
        return self.change(lambda state: decisions.set_mode(state, scope(subject), mode, force=force)).mode

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        versions = decisions.visible(self.state, Name.parse(subject), deleted=deleted)
        return [version.number for version in versions]

    def by_id(self, schema_id: int, context: str = ".") -> str | None:
        ids = self.state.contexts.get(context)
        content = None if ids is None else ids.content_of(schema_id)
        return None if content is None else content.text
