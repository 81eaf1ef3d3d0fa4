"""Any order of registrations, deletions, compactions and restarts, compared with a model of what must hold."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stele.schemas.definitions import Reference

from app.registry import errors
from app.registry.names import Name
from tests.support.schema_topic import SchemaTopic

SUBJECTS = st.sampled_from(["a", "b", "c", ":.eu:a"])
TEXTS = st.sampled_from(["a", "ab", "abc", "b", "a b"])


class RegistryMachine(RuleBasedStateMachine):
    """``versions`` has text, id and deletion of each version; ``given`` what each id has stood for at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.topic = SchemaTopic()
        self.topic.set_config(None, compatibilityLevel="NONE")
        self.topic.set_config(":.eu:", compatibilityLevel="NONE")
        self.versions: dict[str, dict[int, tuple[str, int, bool]]] = {}
        self.given: dict[tuple[str, int], str] = {}

    @rule(subject=SUBJECTS, text=TEXTS, refers=st.none() | st.tuples(SUBJECTS, st.integers(1, 3)))
    def register(self, subject: str, text: str, refers: tuple[str, int] | None) -> None:
        references = () if refers is None else (Reference("r", refers[0], refers[1]),)
        whole = text.replace(" ", "") + (f" of {refers}" if refers else "")
        try:
            version = self.topic.register(subject, text, references=references)
        except errors.InvalidSchemaText:
            assert refers is not None
            assert refers[1] not in self.versions.get(self._referred(subject, refers[0]), {})
            return
        own = self.versions.setdefault(subject, {})
        live = [number for number, (known, _, deleted) in own.items() if known == whole and not deleted]
        if live:
            assert version.number == live[-1]
        else:
            assert version.number == max(own, default=0) + 1
            for number in [n for n, (known, _, _) in own.items() if known == whole]:
                if not self._is_referred(subject, number):
                    del own[number]
            own[version.number] = (whole, version.id, False)
        context = Name.parse(subject).context
        # No id is ever given to two schemas.
        assert self.given.setdefault((context, version.id), whole) == whole

    @rule(subject=SUBJECTS, number=st.integers(1, 4), permanent=st.booleans())
    def delete_version(self, subject: str, number: int, permanent: bool) -> None:
        own = self.versions.get(subject, {})
        try:
            self.topic.delete_version(subject, number, permanent=permanent)
        except (errors.SubjectNotFound, errors.VersionNotFound):
            assert number not in own
        except errors.VersionSoftDeleted:
            assert own[number][2]
            assert not permanent
        except errors.VersionNotSoftDeleted:
            assert not own[number][2]
            assert permanent
        except errors.ReferenceExists:
            assert self._is_referred(subject, number)
        else:
            text, schema_id, _ = own[number]
            own[number] = (text, schema_id, True)
            if permanent:
                del own[number]

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        own = self.versions.get(subject, {})
        try:
            numbers = self.topic.delete_subject(subject, permanent=permanent)
        except errors.SubjectNotFound:
            assert not own
        except errors.SubjectSoftDeleted:
            assert all(deleted for *_, deleted in own.values())
        except errors.SubjectNotSoftDeleted:
            assert permanent
            assert not all(deleted for *_, deleted in own.values())
        except errors.ReferenceExists:
            assert any(self._is_referred(subject, number) for number in own)
        else:
            assert numbers == [n for n, (*_, deleted) in sorted(own.items()) if permanent or not deleted]
            for number in numbers:
                text, schema_id, _ = own[number]
                own[number] = (text, schema_id, True)
                if permanent:
                    del own[number]

    @rule(drops_nulls=st.booleans())
    def compact(self, drops_nulls: bool) -> None:
        self.topic.compact(drops_nulls=drops_nulls)

    @rule()
    def restart(self) -> None:
        self.topic.restart()

    @precondition(lambda self: any(self.versions.values()))
    @rule(data=st.data())
    def read_by_id(self, data: Any) -> None:
        subject = data.draw(st.sampled_from([name for name, own in self.versions.items() if own]))
        number = data.draw(st.sampled_from(sorted(self.versions[subject])))
        text, schema_id, _ = self.versions[subject][number]
        assert self.topic.by_id(schema_id, Name.parse(subject).context) == text.partition(" ")[0]

    @invariant()
    def the_state_is_that_of_the_model(self) -> None:
        shown = {
            name: {n: (version.id, version.is_deleted) for n, version in subject.versions.items()}
            for name, subject in self.topic.state.subjects.items()
        }
        assert shown == {
            name: {n: (schema_id, deleted) for n, (_, schema_id, deleted) in sorted(own.items())}
            for name, own in self.versions.items()
            if own
        }

    @invariant()
    def no_schema_has_two_ids(self) -> None:
        ids: dict[tuple[str, str], set[int]] = {}
        for name, own in self.versions.items():
            for text, schema_id, _ in own.values():
                ids.setdefault((Name.parse(name).context, text), set()).add(schema_id)
        assert all(len(known) == 1 for known in ids.values())

    def _referred(self, subject: str, reference: str) -> str:
        return Name.parse(subject).near(reference).qualified

    def _is_referred(self, subject: str, number: int) -> bool:
        return any(
            text.endswith(f" of {(reference, number)}") and self._referred(name, reference) == subject
            for name, own in self.versions.items()
            for text, *_ in own.values()
            for reference in ("a", "b", "c", ":.eu:a")
        )


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
