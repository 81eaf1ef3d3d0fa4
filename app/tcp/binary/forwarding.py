"""Forward frames about groups to their coordinator, and serve forwarded ones.

The listener does not know how a frame travels: a ``GroupForwarding`` is given to it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace

from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

from ...errors import InvalidRequest
from ...security.forwarding import ForwardedClient
from ...work_budget import in_turns
from ..deferred_response import DeferredResponse
from ..errors import failure
from ..response_queue import Buffers
from .dispatch import begin
from .guards import check
from .handlers.context import Answer, BinaryListener

# In a frame: its type follows its length.
_TYPE_AT = 4

GROUP_REQUESTS = (
    m.JoinGroupRequest,
    m.HeartbeatRequest,
    m.LeaveGroupRequest,
    m.ClaimRequest,
    m.ReleaseRequest,
    m.CommitRequest,
    m.CommittedRequest,
    m.OwnerFetchRequest,
    m.PollRequest,
    m.AckRequest,
    m.NackRequest,
    m.ExtendRequest,
)


def handle(listener: BinaryListener, request: m.Request, client: ForwardedClient) -> Answer:
    """Hand a request to its handler, or forward it to the coordinator of the groups.

    What is forwarded is ``request``, not what the client sent: a quota may have lowered its limits.

    Raises ``SteleError``.
    """
    forwarding = listener.forwarding
    if forwarding is not None and isinstance(request, GROUP_REQUESTS):
        member = forwarding.target(request.group)
        if member is not None:
            frame = request.encode()
            return forwarding.send(request.group, member, frame[_TYPE_AT], frame[_TYPE_AT + 1 :], client)
    return begin(listener, request)


async def serve_frame(
    listener: BinaryListener, frame_type: int, body: bytes, client: ForwardedClient
) -> bytes:
    """Serve a frame from another broker, and return the frame of the response."""
    access = listener.security.access(client.principal, client.host)
    own = replace(listener, access=access)
    try:
        request = await in_turns(m.decode_request_in_steps(frame_type, body))
        if not isinstance(request, GROUP_REQUESTS):
            raise InvalidRequest("only requests for groups are forwarded")
        await check(own, request)
        answer = begin(own, request)
        if isinstance(answer, DeferredResponse):
            answer = answer.wait()
        return _joined(await answer if isinstance(answer, Coroutine) else answer)
    except m.MessageError as error:
        return m.ErrorResponse(
            response_type=frame_type + 1, code=ErrorCode.INVALID_REQUEST, message=str(error)
        ).encode()
    except Exception as error:  # noqa: BLE001 - the edge of a task, for a client of another broker
        request_name = f"{m.MessageType(frame_type).name} forwarded for {client.host}"
        code, text = failure(error, request_name, listener.broker.counts)
        return m.ErrorResponse(response_type=frame_type + 1, code=code, message=text).encode()


def _joined(frame: Buffers) -> bytes:
    return frame if isinstance(frame, bytes) else b"".join(frame)
