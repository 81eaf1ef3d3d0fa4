"""AddRaftVoter (api key 80): adds a controller to the quorum (KIP-853)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int16, Int32, UInt16, Uuid, at, message

from ..api import Api


@message
class Listener:
    name: str
    host: str
    port: UInt16


@message
class AddRaftVoterRequest:
    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Sequence[Listener]
    ack_when_committed: Bool = at("1+", default=True)


@message
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None


API = Api(
    key=80,
    name="AddRaftVoter",
    versions=(0, 1),
    flexible_since=0,
    request=AddRaftVoterRequest,
    response=AddRaftVoterResponse,
)
