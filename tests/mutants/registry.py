"""Mutants of the schema registry: each is a way in which registries have lost schemas or mixed up ids."""

from __future__ import annotations

from .table import Mutant

_UNIT = "tests/unit/registry"
_SERVICE = f"{_UNIT}/test_service.py"

REGISTRY_MUTANTS = (
    # Two writers give the same id (confluentinc/schema-registry #858).
    Mutant(
        "app/registry/store.py",
        "acks=Acks.ALL, expected_end=position)",
        "acks=Acks.ALL)",
        _SERVICE,
        "another_writer",
    ),
    # Compaction makes a restart forget the highest id.
    Mutant(
        "app/registry/decisions.py",
        "    wanted |= {name: state.contexts[name].highest_id for name in contexts}\n",
        "",
        f"{_UNIT}/test_state.py",
        "outlives",
    ),
    # A null in one form of a key leaves the others (confluentinc/schema-registry #4420).
    Mutant(
        "app/registry/decisions.py",
        "    forms = sorted(state.foreign_keys.get(key, ()))\n",
        "    forms: list[bytes] = []\n",
        f"{_UNIT}/test_state.py",
        "other_servers",
    ),
    # The id of another schema is answered, whose values nobody can read then (confluentinc/schema-registry #2430).
    Mutant(
        "app/registry/registrations.py",
        "    return owner is not None and owner.is_same(version.content)\n",
        "    return owner is not None\n",
        f"{_UNIT}/test_state.py",
        "id_of_another",
    ),
    # A version to which others refer is dropped (confluentinc/schema-registry #4277).
    Mutant(
        "app/registry/registrations.py",
        "            and place not in state.referents\n",
        "",
        f"{_UNIT}/test_registrations.py",
        "stays_if",
    ),
    # A schema refers to one that was deleted in between.
    Mutant(
        "app/registry/registrations.py",
        "    _check_references(state, name, content.references)\n",
        "",
        f"{_UNIT}/test_registrations.py",
        "as_it_is",
    ),
    # The answer depends on what this broker has parsed.
    Mutant(
        "app/registry/registrations.py",
        "    if unknown:\n        return Missing(digests=unknown)\n",
        "",
        f"{_UNIT}/test_registrations.py",
        "another_form",
    ),
    # A topic that deletes old records is taken for a store (confluentinc/schema-registry #299).
    Mutant(
        "app/registry/store.py",
        "    if topic.config.cleanup_policy != _CLEANUP_POLICY:\n",
        "    if False:\n",
        _SERVICE,
        "would_lose",
    ),
    # A deletion of the subject reaches versions that came after it.
    Mutant(
        "app/registry/state.py",
        "            if version.number <= number:\n",
        "            if True:\n",
        f"{_UNIT}/test_state.py",
        "up_to_a_version",
    ),
)
