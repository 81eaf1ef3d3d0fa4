"""The settings of the connector, as the process that the broker starts gets them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cdc.supervisor import CdcSupervisor
from app.settings import SETTINGS, Settings

# None is its default.
OPTIONS: dict[str, object] = {
    "dsn": "postgresql://app@db/shop",
    "tables": "public.orders",
    "channels": "news",
    "messages": "orders*",
    "decimals": "string",
    "times": "connect",
    "max_slot_lag": 1_000_000,
    "slot_lag_action": "pause-copies",
    "accept_gap": "0/3000060",
    "slot": "slot_1",
    "publication": "changes",
    "prefix": "shop",
    "notify_prefix": "told",
    "partitions": 3,
    "storage": "memory",
    "key_column": "number",
    "tombstones": True,
    "compact": True,
    "value": "row",
    "format": "avro",
    "snapshot": "never",
    "transactions": "off",
    "transaction_timeout": 60,
}
# ``stele cdc`` reads its options, shows them as its status, and goes on until it is killed.
CONNECTOR = f"""#!{sys.executable}
import json, sys, time
from stele.commands.cdc import cdc
given = cdc.make_context("cdc", sys.argv[sys.argv.index("cdc") + 1:]).params
print(json.dumps({{"state": "streaming", "given": given}}), flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "connector"
    file.write_text(CONNECTOR)
    file.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(file))


async def status_of(supervisor: CdcSupervisor) -> dict[str, Any]:
    async with asyncio.timeout(120):
        while (status := supervisor.connectors()[0])["state"] != "streaming":  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.01)
    return status


async def test_each_setting_is_an_option_of_the_connector(caplog: pytest.LogCaptureFixture) -> None:
    declared = {setting.field: setting for setting in SETTINGS.values() if setting.group == "cdc"}
    assert {name for name, value in OPTIONS.items() if value != declared[name].default} == set(declared)

    given: dict[str, object] = {f"cdc_{name}": value for name, value in OPTIONS.items()}
    settings = Settings.model_validate({**given, "shutdown_timeout_ms": 50})
    supervisor = CdcSupervisor(settings, "stele://127.0.0.1:9", registry_url="http://127.0.0.1:8")
    supervisor.start()
    status = await status_of(supervisor)
    assert status["given"]["registry"] == "http://127.0.0.1:8"
    assert {name: status["given"][name] for name in OPTIONS} == OPTIONS
    assert status["given"]["broker"] == "stele://127.0.0.1:9"

    await supervisor.close()
    assert "did not end within 50 ms and is killed" in caplog.text
