"""RemoveRaftVoter (api key 81): removes a controller from the quorum (KIP-853)."""

from __future__ import annotations

from stele.wire.schema import Int16, Int32, Uuid, message

from ..api import Api


@message
class RemoveRaftVoterRequest:
    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: Uuid


@message
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None


API = Api(
    key=81,
    name="RemoveRaftVoter",
    versions=(0, 0),
    flexible_since=0,
    request=RemoveRaftVoterRequest,
    response=RemoveRaftVoterResponse,
)
