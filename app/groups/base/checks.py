"""Checks of a request that do not depend on the group."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import InvalidGroupId, InvalidRequest, InvalidSessionTimeout
from ...settings import Settings
from .messages import JoinRequest

# Kafka limits a name by the size of a string only; names this long are mistakes.
GROUP_ID_LENGTH_MAX = 1024
_INT32_MAX = 2**31 - 1
# The memory of a protocol in addition to its bytes.
_PROTOCOL_OVERHEAD_BYTES = 128


def check_group_id(group: str) -> None:
    """Raises ``InvalidGroupId``."""
    if not group:
        raise InvalidGroupId(group, "it is empty")
    if len(group) > GROUP_ID_LENGTH_MAX:
        raise InvalidGroupId(group, f"it is longer than {GROUP_ID_LENGTH_MAX} characters")
    try:
        group.encode()
    except UnicodeEncodeError as error:
        raise InvalidGroupId(group, "it is not valid Unicode") from error


def check_join(request: JoinRequest, settings: Settings) -> None:
    """Check the numbers and texts of a join.

    Raises:
        InvalidSessionTimeout: the session timeout is outside the bounds of ``settings``.
        InvalidRequest: another number or text is not valid, or the member has too many bytes.
    """
    min_ms, max_ms = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not min_ms <= request.session_timeout_ms <= max_ms:
        raise InvalidSessionTimeout(request.group, request.session_timeout_ms, min_ms=min_ms, max_ms=max_ms)
    if not 0 <= request.rebalance_timeout_ms <= _INT32_MAX:
        raise InvalidRequest(
            f"the rebalance timeout is {request.rebalance_timeout_ms} ms; it must be from 0 to {_INT32_MAX}"
        )
    if request.instance_id == "":
        raise InvalidRequest("the instance id is empty; leave it out, or give the member one")
    size = sum(len(metadata) + _PROTOCOL_OVERHEAD_BYTES for _, metadata in request.protocols)
    if size <= settings.group_member_bytes_max:
        # Of more protocols the texts need not be looked at.
        texts = (
            ("member id", request.member_id),
            ("instance id", request.instance_id or ""),
            ("client id", request.client_id),
            ("client host", request.client_host),
            ("protocol type", request.protocol_type),
            *(("protocol name", name) for name, _ in request.protocols),
        )
        size += sum(text_size(text, what) for what, text in texts)
    if size > settings.group_member_bytes_max:
        raise InvalidRequest(
            f"the member takes {size} bytes, and {settings.group_member_bytes_max} are allowed; "
            "subscribe to fewer topics, or raise group_member_bytes_max of the broker"
        )


def check_member_size(settings: Settings, texts: Iterable[tuple[str, str]]) -> None:
    """Bound the memory that a member takes by ``texts``, each with what it is.

    Raises ``InvalidRequest``.
    """
    size, limit = sum(text_size(text, what) for what, text in texts), settings.group_member_bytes_max
    if size > limit:
        raise InvalidRequest(
            f"the member takes {size} bytes, and {limit} are allowed; "
            "subscribe to fewer topics, or raise group_member_bytes_max of the broker"
        )


def text_size(text: str, what: str) -> int:
    """Return the number of bytes of ``text`` in UTF-8.

    Raises ``InvalidRequest`` if it contains half a surrogate pair.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} is not valid Unicode: {error.reason}") from error
