"""Delay failed logins by a decaying debt per address and per user; pure, without a clock.

Each failure adds to the debt. An attempt waits as long as the debts of its address and
its user say. An address whose debt is too high is refused before its password is even
checked, however many connections it uses; such an attempt adds no debt. The addresses of
an IPv6 /64 network count as one, because a single host can use them all. A user is never locked out, because that
would let anybody lock out anybody: its wait has a low limit instead.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

# Failures without any delay: people mistype.
FREE_FAILURES = 5
# One failure is forgiven in this time.
FORGIVEN_MS = 1000
ADDRESS_DELAY_MAX_MS = 5000
USER_DELAY_MAX_MS = 1000
# An address is refused for this long at most after its last failure.
_DEBT_MAX_MS = 60_000
# No user has a longer name; the first characters of one count for it.
_NAME_CHARACTERS_MAX = 255
_NETWORK_BITS = 64
# Addresses and users remembered; the ones that failed longest ago are forgotten first.
ENTRIES_MAX = 10_000


@dataclass(slots=True)
class _Debt:
    owed_ms: float
    at_ms: int

    def left_ms(self, now_ms: int) -> float:
        return max(0.0, self.owed_ms - max(0, now_ms - self.at_ms))


class LoginThrottle:
    """``now_ms`` is of a monotonic clock in every call."""

    def __init__(self, free_failures: int = FREE_FAILURES) -> None:
        self._free_ms = free_failures * FORGIVEN_MS
        self._debts: OrderedDict[str, _Debt] = OrderedDict()

    def delay_ms(self, address: str, user: str, now_ms: int) -> int | None:
        """Return how long an attempt has to wait, None if it is refused unchecked."""
        by_address = self._delay_ms(_address_key(address), now_ms)
        if by_address > ADDRESS_DELAY_MAX_MS:
            return None
        by_user = min(USER_DELAY_MAX_MS, self._delay_ms(_user_key(user), now_ms)) if user else 0
        return round(max(by_address, by_user))

    def failed(self, address: str, user: str, now_ms: int) -> None:
        self._add(_address_key(address), now_ms)
        if user:
            self._add(_user_key(user), now_ms)

    def __len__(self) -> int:
        return len(self._debts)

    def _delay_ms(self, key: str, now_ms: int) -> float:
        debt = self._debts.get(key)
        if debt is None:
            return 0
        return max(0.0, debt.left_ms(now_ms) - self._free_ms)

    def _add(self, key: str, now_ms: int) -> None:
        debt = self._debts.pop(key, None)
        owed_ms = FORGIVEN_MS if debt is None else debt.left_ms(now_ms) + FORGIVEN_MS
        self._debts[key] = _Debt(min(owed_ms, self._free_ms + _DEBT_MAX_MS), now_ms)
        if len(self._debts) > ENTRIES_MAX:
            self._debts.popitem(last=False)


def _address_key(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return f"address {address}"
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return f"network {int(parsed) >> _NETWORK_BITS:x}"
    return f"address {address}"


def _user_key(user: str) -> str:
    return f"user {user[:_NAME_CHARACTERS_MAX]}"
