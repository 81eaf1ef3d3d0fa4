"""Who may change quotas over the Kafka protocol."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.quotas import AlterClientQuotasEntry, AlterClientQuotasRequest, EntityData, OpData

from app.security.policy import ListenerSecurity
from app.security.principal import ANONYMOUS, Principal
from app.tcp.kafka.context import Context
from app.tcp.kafka.handlers.quotas import alter_client_quotas
from tests.support.kafka_application import kafka_listener

REQUEST = AlterClientQuotasRequest(
    entries=[
        AlterClientQuotasEntry(
            entity=[EntityData(entity_type="user", entity_name=None)],
            ops=[OpData(key="producer_byte_rate", value=5.0, remove=False)],
        )
    ],
    validate_only=False,
)


@pytest.mark.parametrize(
    ("principal", "code"),
    [(ANONYMOUS, ErrorCode.INVALID_REQUEST), (Principal("alice"), ErrorCode.NONE)],
    ids=str,
)
async def test_an_anonymous_client_cannot_change_quotas_where_there_are_logins(
    tmp_path: Path, principal: Principal, code: ErrorCode
) -> None:
    async with kafka_listener(tmp_path) as listener:
        guarded = replace(listener, security=ListenerSecurity(listener="kafka", guards_users=True))
        context = Context(
            listener=guarded, version=1, client_id="", client_host="127.0.0.1", principal=principal
        )
        (result,) = (await alter_client_quotas(context, REQUEST)).entries
        assert result.error_code == code
        assert bool(listener.broker.quotas.list()) == (code == ErrorCode.NONE)
