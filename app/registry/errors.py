"""Why the registry refuses a request: one class per error code of Confluent's API.

::

    RegistryError
    ├── SubjectNotFound         40401
    ├── VersionNotFound         40402
    ├── SchemaNotFound          40403
    ├── SubjectSoftDeleted      40404   it was deleted before; only a permanent deletion is left
    ├── SubjectNotSoftDeleted   40405   a permanent deletion comes after a soft one
    ├── VersionSoftDeleted      40406
    ├── VersionNotSoftDeleted   40407
    ├── ConfigNotFound          40408   neither the subject nor its context has a configuration of its own
    ├── ModeNotFound            40409
    ├── IncompatibleSchema      409     ``messages`` has the reasons
    ├── InvalidSchemaText       42201   also a schema without text, a version out of turn, a missing reference
    ├── InvalidVersion          42202
    ├── InvalidLevel            42203
    ├── InvalidMode             42204
    ├── NotPermitted            42205   the mode of the subject does not allow it
    ├── ReferenceExists         42206   other schemas refer to what was to be deleted
    ├── IdMismatch              42207   the schema is registered with another id than that in the body
    ├── InvalidSubject          42208
    ├── SchemaTooLarge          42209
    ├── InvalidRules            42210
    ├── ContextNotEmpty         42211
    ├── StoreFailed             50001   the topic cannot be read or written now
    └── StoreTimedOut           50002   the write may still take effect

They are no ``SteleError``: no other listener can meet them. The registry translates errors of the broker into the last
two, and lets ``BrokerClosing`` pass. Texts of 404xx, 42202, 42203, of an empty schema, and the beginnings of 409 and of
an invalid schema are those of other registries, because clients and their tests compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .definitions import LEVELS, MODES


class RegistryError(Exception):
    """A refusal; ``str`` of it is the message for the client."""

    error_code: ClassVar[int]

    @property
    def status(self) -> int:
        """The HTTP status: the first three digits of the code."""
        return int(str(self.error_code)[:3])


class SubjectNotFound(RegistryError):
    error_code = 40401

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' not found.")
        self.subject = subject


class VersionNotFound(RegistryError):
    error_code = 40402

    def __init__(self, version: int | str) -> None:
        super().__init__(f"Version {version} not found.")
        self.version = version


class SchemaNotFound(RegistryError):
    error_code = 40403

    def __init__(self) -> None:
        super().__init__("Schema not found")


class SubjectSoftDeleted(RegistryError):
    error_code = 40404

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")
        self.subject = subject


class SubjectNotSoftDeleted(RegistryError):
    error_code = 40405

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' was not deleted first before being permanently deleted")
        self.subject = subject


class VersionSoftDeleted(RegistryError):
    error_code = 40406

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
        )
        self.subject, self.version = subject, version


class VersionNotSoftDeleted(RegistryError):
    error_code = 40407

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        )
        self.subject, self.version = subject, version


class ConfigNotFound(RegistryError):
    error_code = 40408

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' does not have subject-level compatibility configured")
        self.subject = subject


class ModeNotFound(RegistryError):
    error_code = 40409

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' does not have subject-level mode configured")
        self.subject = subject


class IncompatibleSchema(RegistryError):
    error_code = 409

    def __init__(self, subject: str, messages: Sequence[str]) -> None:
        super().__init__(
            f"Schema being registered is incompatible with an earlier schema of subject '{subject}': "
            f"{'; '.join(messages)}"
        )
        self.subject, self.messages = subject, list(messages)


class InvalidSchemaText(RegistryError):
    error_code = 42201

    def __init__(self, message: str) -> None:
        super().__init__(message)


class InvalidVersion(RegistryError):
    error_code = 42202

    def __init__(self, version: int | str) -> None:
        super().__init__(
            f"The specified version '{version}' is not a valid version id. "
            'Allowed values are between [1, 2^31-1] and the string "latest"'
        )
        self.version = version


class InvalidLevel(RegistryError):
    error_code = 42203

    def __init__(self) -> None:
        names = [level.lower() for level in LEVELS]
        super().__init__(
            f"Invalid compatibility level. Valid values are {', '.join(names[:-1])}, and {names[-1]}"
        )


class InvalidMode(RegistryError):
    error_code = 42204

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or f"invalid mode; valid are {', '.join(MODES)}")


class NotPermitted(RegistryError):
    error_code = 42205

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ReferenceExists(RegistryError):
    """``ids`` are those of the schemas that refer to the version."""

    error_code = 42206

    def __init__(self, subject: str, version: int, ids: Sequence[int]) -> None:
        super().__init__(
            f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
        )
        self.subject, self.version, self.ids = subject, version, list(ids)


class IdMismatch(RegistryError):
    error_code = 42207

    def __init__(self, known: int, wanted: int) -> None:
        super().__init__(f"the schema is registered with id {known}, not with {wanted}")
        self.known, self.wanted = known, wanted


class InvalidSubject(RegistryError):
    error_code = 42208

    def __init__(self, subject: str) -> None:
        super().__init__(f"the subject {subject!r} is not valid: use a name without control characters")
        self.subject = subject


class SchemaTooLarge(RegistryError):
    error_code = 42209

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the record of the schema has {size} bytes, and {limit} are allowed")
        self.size, self.limit = size, limit


class InvalidRules(RegistryError):
    error_code = 42210

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ContextNotEmpty(RegistryError):
    error_code = 42211

    def __init__(self, context: str) -> None:
        super().__init__(f"the context '{context}' has subjects; delete them permanently first")
        self.context = context


class StoreFailed(RegistryError):
    error_code = 50001

    def __init__(self, reason: object) -> None:
        super().__init__(f"the topic of the schemas cannot be used now: {reason}")


class StoreTimedOut(RegistryError):
    error_code = 50002

    def __init__(self, reason: object) -> None:
        super().__init__(f"no confirmation in time: {reason}; the write may still take effect")
