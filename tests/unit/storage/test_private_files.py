"""Only the user of the broker can read what it stores."""

from __future__ import annotations

from pathlib import Path

from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.storage.disk.files import RealFiles
from app.storage.embedded import EmbeddedEngine
from app.storage.topic_config import TopicConfig
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import QUIET, append_synced


def open_to_others(root: Path) -> list[str]:
    return [str(path) for path in [root, *root.rglob("*")] if path.stat().st_mode & 0o077]


async def test_a_data_directory_is_for_its_owner_alone_also_if_it_was_not_before(tmp_path: Path) -> None:
    root, clock = tmp_path / "data", SystemClock()
    config = TopicConfig(segment_bytes=200, retention_ms=-1)
    for run in range(2):
        engine = EmbeddedEngine(RealFiles(), root, clock=clock, options=QUIET)
        await engine.open()
        await engine.create([spec_of(ORDERS, clock=clock, config=config)])
        await engine.start()
        catalog, groups = SqliteCatalog(root / "metadata.sqlite"), SqliteGroupStore(root / "groups.sqlite")
        groups.open()
        for number in range(5):
            await append_synced(engine, b"%d" % number + b"x" * 60)
        assert len(list(root.rglob("*"))) > 10
        assert open_to_others(root) == [], run
        catalog.close()
        groups.close()
        await engine.close()
        assert open_to_others(root) == [], run
        # As an earlier release left it.
        for path in root.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        root.chmod(0o755)
