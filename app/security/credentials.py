"""Users and API keys: all in memory, because every login reads them; changes go to the store first."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from ..cluster.credentials import ApiKeyRecord, CredentialStore, ScramRecord
from ..errors import DuplicateUser, InvalidCredential, TooManyCredentials, UnknownCredential
from .acl import WILDCARD
from .principal import ANONYMOUS, BROKER, Login, Principal
from .scram import (
    SALT_BYTES,
    CredentialForm,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    form_of,
    unknown_user,
)

_T = TypeVar("_T")

USERS_MAX = 10_000
API_KEYS_MAX = 10_000
PASSWORD_CHARACTERS_MIN, PASSWORD_CHARACTERS_MAX = 8, 1024
_NAME_CHARACTERS_MAX = 255
_DESCRIPTION_CHARACTERS_MAX = 255
# Beside the mechanisms: of each user the credential that passwords are checked with.
_PASSWORDS = "passwords"
_MECHANISMS: tuple[ScramMechanism, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")

# stele_<id>_<secret>: the prefix tells an API key from a JWT, and secret scanners find it.
_KEY_PREFIX = "stele"
_KEY_ID_BYTES = 6
_KEY_SECRET_BYTES = 32
_NO_DIGEST = bytes(32)


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """``token`` is shown once: it cannot be computed from what is stored."""

    record: ApiKeyRecord
    token: str

    def __repr__(self) -> str:
        return f"NewApiKey({self.record.key_id!r})"


def check_user_name(user: str) -> None:
    """Raise InvalidCredential if no user may have this name."""
    if not 0 < len(user) <= _NAME_CHARACTERS_MAX or not user.isprintable():
        raise InvalidCredential(user, f"a name has 1 to {_NAME_CHARACTERS_MAX} printable characters")
    if user == ANONYMOUS.name:
        raise InvalidCredential(user, "this name is reserved for clients without a login")
    if user == WILDCARD:
        raise InvalidCredential(user, "this name matches every principal in access rules")


def check_password(user: str, password: str) -> None:
    """Raise InvalidCredential if ``password`` is too short or too long."""
    if not PASSWORD_CHARACTERS_MIN <= len(password) <= PASSWORD_CHARACTERS_MAX or "\0" in password:
        raise InvalidCredential(
            user, f"a password has {PASSWORD_CHARACTERS_MIN} to {PASSWORD_CHARACTERS_MAX} characters"
        )


def _for_password(by_mechanism: Mapping[str, ScramCredential]) -> ScramCredential:
    """Return the credential of a user that a password is checked with.

    Always the same one, whatever the order in which they were stored: logins compare it with an earlier one.
    """
    return next(by_mechanism[mechanism] for mechanism in _MECHANISMS if mechanism in by_mechanism)


class Credentials:
    """Changes come one at a time; the observers get the logins that used what was changed."""

    def __init__(
        self, store: CredentialStore, *, before_change: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """``before_change`` lets ``refresh`` take over what other brokers changed."""
        self._store = store
        self._before_change = before_change
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-credentials")
        self._lock = asyncio.Lock()
        self._secret = b""
        self._scram: dict[str, dict[str, ScramCredential]] = {}
        # Counted when they are asked for, and forgotten with each change.
        self._known_forms: dict[str, Counter[CredentialForm]] | None = None
        self._keys: dict[str, ApiKeyRecord] = {}
        # Keys of the broker's own processes; they end with this process.
        self._internal: dict[str, ApiKeyRecord] = {}
        self._observers: list[Callable[[str], None]] = []

    async def open(self) -> None:
        self._secret = await self._run(lambda store: store.secret())
        await self.refresh()

    async def refresh(self) -> None:
        """Take over what is stored; what another broker changed or deleted is no longer valid."""
        async with self._lock:
            records, keys = await self._run(lambda store: (store.scram_records(), store.api_keys()))
            old_scram, old_keys = self._scram, self._keys
            self._scram = {}
            self._known_forms = None
            for record in records:
                self._put(record)
            self._keys = {key.key_id: key for key in keys}
        for user, by_mechanism in old_scram.items():
            if any(self._scram.get(user, {}).get(name) != known for name, known in by_mechanism.items()):
                self._revoked(f"user:{user}")
        for key_id in old_keys.keys() - self._keys.keys():
            self._revoked(f"key:{key_id}")

    async def close(self) -> None:
        await self._run(lambda store: store.close())
        self._thread.shutdown()

    def observe_revocations(self, observer: Callable[[str], None]) -> None:
        """Call ``observer`` with the ``Login.credential`` that is no longer valid."""
        self._observers.append(observer)

    # ── what is there ──

    @property
    def secret(self) -> bytes:
        """A secret of the cluster, from which keys are derived."""
        return self._secret

    def is_empty(self) -> bool:
        return not self._scram and not self._keys

    def users(self) -> dict[str, list[ScramCredential]]:
        return {user: list(by_mechanism.values()) for user, by_mechanism in sorted(self._scram.items())}

    def has_scram(self, user: str, mechanism: ScramMechanism) -> bool:
        return mechanism in self._scram.get(user, {})

    def scram(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the credential of ``user``, or a made-up one that no password fits."""
        known = self._scram.get(user, {}).get(mechanism)
        # Made up in any case, so that the time does not tell whether there is such a user.
        made_up = unknown_user(mechanism, user, self._secret, forms=self._forms().get(mechanism))
        return made_up if known is None else known

    def password_credential(self, user: str) -> ScramCredential:
        """Return the credential to check a password with, made up for an unknown user."""
        made_up = unknown_user(_MECHANISMS[0], user, self._secret, forms=self._forms().get(_PASSWORDS))
        by_mechanism = self._scram.get(user)
        return made_up if by_mechanism is None else _for_password(by_mechanism)

    def _forms(self) -> dict[str, Counter[CredentialForm]]:
        """Return the forms of the credentials per mechanism.

        Also, as ``_PASSWORDS``, of those that passwords are checked with.
        """
        if self._known_forms is None:
            self._known_forms = {}
            for by_mechanism in self._scram.values():
                of_user = {**by_mechanism, _PASSWORDS: _for_password(by_mechanism)}
                for use, credential in of_user.items():
                    self._known_forms.setdefault(use, Counter())[form_of(credential)] += 1
        return self._known_forms

    def api_keys(self) -> list[ApiKeyRecord]:
        return list(self._keys.values())

    def key_login(self, token: str, now_ms: int, *, key_id: str | None = None) -> Login | None:
        """Return the login of an API key, None if it is unknown, has expired, or is not ``key_id``."""
        prefix, _, rest = token.partition("_")
        named, _, secret = rest.partition("_")
        key = self._keys.get(named) or self._internal.get(named)
        digest = hashlib.sha256(secret.encode()).digest()
        is_right = hmac.compare_digest(digest, _NO_DIGEST if key is None else key.digest)
        if key is None or not is_right or prefix != _KEY_PREFIX or key_id not in (None, named):
            return None
        if key.expires_at_ms is not None and key.expires_at_ms <= now_ms:
            return None
        return Login(
            principal=Principal.parse(key.principal),
            mechanism="API-KEY",
            credential=f"key:{named}",
            expires_at_ms=key.expires_at_ms,
        )

    def owner_of_key(self, key_id: str) -> str | None:
        """Return the principal that an API key acts as, None if there is no such key."""
        key = self._keys.get(key_id)
        return None if key is None else key.principal

    # ── changes ──

    async def add_user(self, user: str, password: str) -> None:
        """Create a user with credentials for both SCRAM mechanisms. Raises DuplicateUser."""
        check_user_name(user)
        await self._prepare()
        async with self._lock:
            if user in self._scram:
                raise DuplicateUser(user)
            await self._set_password(user, password)

    async def set_password(self, user: str, password: str) -> None:
        """Replace the password of a user. Raises UnknownCredential."""
        await self._prepare()
        async with self._lock:
            if user not in self._scram:
                raise UnknownCredential("user", user)
            await self._set_password(user, password)
        self._revoked(f"user:{user}")

    async def delete_user(self, user: str) -> None:
        """Delete a user, its credentials and the API keys that act as it.

        Raises UnknownCredential.

        A user without a password can have keys, too, and is deleted with the last of them.
        """
        principal = str(Principal(user))
        await self._prepare()
        async with self._lock:
            keys = [key.key_id for key in self._keys.values() if key.principal == principal]
            if user not in self._scram and not keys:
                raise UnknownCredential("user", user)
            # The keys first: a crash in between must not leave keys of a user who seems to be gone.
            for key_id in keys:
                await self._run(partial(_delete_key, key_id=key_id))
                del self._keys[key_id]
            await self._run(lambda store: store.change_scram((), (), password_of=user))
            self._scram.pop(user, None)
            self._known_forms = None
        for credential in (f"user:{user}", *(f"key:{key_id}" for key_id in keys)):
            self._revoked(credential)

    async def set_scram(self, user: str, credential: ScramCredential) -> None:
        """Store the credential of one mechanism, as Kafka's clients do (KIP-554)."""
        check_user_name(user)
        record = _record(user, credential)
        await self._prepare()
        async with self._lock:
            self._check_room(user)
            was_there = credential.mechanism in self._scram.get(user, {})
            await self._run(lambda store: store.change_scram((record,), ()))
            self._put(record)
        if was_there:
            self._revoked(f"user:{user}")

    async def delete_scram(self, user: str, mechanism: ScramMechanism) -> None:
        """Delete the credential of one mechanism. Raises UnknownCredential."""
        await self._prepare()
        async with self._lock:
            if not self.has_scram(user, mechanism):
                raise UnknownCredential("user", user)
            await self._run(lambda store: store.change_scram((), ((user, mechanism),)))
            self._known_forms = None
            del self._scram[user][mechanism]
            if not self._scram[user]:
                del self._scram[user]
        self._revoked(f"user:{user}")

    async def create_key(
        self, user: str, *, description: str = "", now_ms: int, expires_at_ms: int | None = None
    ) -> NewApiKey:
        """Create an API key that acts as ``user``, who need not have a password."""
        check_user_name(user)
        if len(description) > _DESCRIPTION_CHARACTERS_MAX or not description.isprintable():
            raise InvalidCredential(
                user, f"a description has at most {_DESCRIPTION_CHARACTERS_MAX} printable characters"
            )
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            raise InvalidCredential(user, "the key would have expired already")
        made = _new_key(Principal(user), description, now_ms, expires_at_ms)
        await self._prepare()
        async with self._lock:
            if len(self._keys) >= API_KEYS_MAX:
                raise TooManyCredentials("API keys", API_KEYS_MAX)
            await self._run(lambda store: store.add_api_key(made.record))
            self._keys[made.record.key_id] = made.record
        return made

    async def delete_key(self, key_id: str) -> None:
        """Delete an API key. Raises UnknownCredential."""
        await self._prepare()
        async with self._lock:
            if key_id not in self._keys:
                raise UnknownCredential("API key", key_id)
            await self._run(lambda store: store.delete_api_key(key_id))
            del self._keys[key_id]
        self._revoked(f"key:{key_id}")

    def internal_key(self, name: str, *, now_ms: int) -> str:
        """Return the token of a new key for a process of the broker itself; it is never stored."""
        made = _new_key(Principal(name, kind=BROKER), "", now_ms, None)
        self._internal[made.record.key_id] = made.record
        return made.token

    async def _prepare(self) -> None:
        if self._before_change is not None:
            await self._before_change()

    async def _set_password(self, user: str, password: str) -> None:
        check_password(user, password)
        self._check_room(user)

        def make() -> list[ScramRecord]:
            return [
                _record(
                    user, credential_of_password(mechanism, password, salt=secrets.token_bytes(SALT_BYTES))
                )
                for mechanism in _MECHANISMS
            ]

        records = await self._run(lambda _: make())
        await self._run(lambda store: store.change_scram(records, (), password_of=user))
        self._scram.pop(user, None)
        for record in records:
            self._put(record)

    def _check_room(self, user: str) -> None:
        if user not in self._scram and len(self._scram) >= USERS_MAX:
            raise TooManyCredentials("users", USERS_MAX)

    def _put(self, record: ScramRecord) -> None:
        mechanism = cast("ScramMechanism", record.mechanism)
        self._known_forms = None
        self._scram.setdefault(record.user, {})[mechanism] = ScramCredential(
            mechanism=mechanism,
            salt=record.salt,
            stored_key=record.stored_key,
            server_key=record.server_key,
            iterations=record.iterations,
        )

    def _revoked(self, credential: str) -> None:
        for observer in self._observers:
            observer(credential)

    async def _run(self, work: Callable[[CredentialStore], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._store)


def _record(user: str, credential: ScramCredential) -> ScramRecord:
    return ScramRecord(
        user=user,
        mechanism=credential.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _new_key(principal: Principal, description: str, now_ms: int, expires_at_ms: int | None) -> NewApiKey:
    key_id, secret = secrets.token_hex(_KEY_ID_BYTES), secrets.token_urlsafe(_KEY_SECRET_BYTES)
    record = ApiKeyRecord(
        key_id=key_id,
        digest=hashlib.sha256(secret.encode()).digest(),
        principal=str(principal),
        description=description,
        created_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )
    return NewApiKey(record, f"{_KEY_PREFIX}_{key_id}_{secret}")


def _delete_key(store: CredentialStore, *, key_id: str) -> bool:
    return store.delete_api_key(key_id)


def key_id_of(token: str) -> str:
    """Return the id in an API key, empty if ``token`` is none; it is not checked."""
    parts: Sequence[str] = token.split("_", 2)
    return parts[1] if len(parts) == 3 and parts[0] == _KEY_PREFIX else ""
