"""A data directory from a cut, as a restore leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from app.storage.recovery.checkpoint import LEADER_EPOCHS, LOG_START_OFFSETS, write_offsets

from ..simulated_files import SimulatedFiles
from .chain import CutView, segment_bytes, store_bytes
from .tables import Rows, rows_of


def restored(
    cut: CutView, get: Callable[[str], bytes | None], files: SimulatedFiles, data: Path, *, leader_epoch: int
) -> dict[str, Rows]:
    """Write the files of ``cut``, and return the rows of its stores."""
    files.make_dir(data)
    for (topic_id, number), partition in cut.partitions.items():
        directory = data / f"{partition.topic}-{number}"
        files.make_dir(directory)
        files.create_file(directory / "partition.metadata", f"version: 0\ntopic_id: {topic_id}\n".encode())
        for base_offset, segment in partition.segments.items():
            files.create_file(directory / f"{base_offset:020d}.log", segment_bytes(segment, get))
        if partition.holes_until:
            files.create_file(directory / "holes-until", b"0\n%d\n" % partition.holes_until)
        lines = [
            "0",
            str(len(partition.epochs)),
            *(f"{epoch} {offset}" for epoch, offset in partition.epochs),
        ]
        files.create_file(directory / LEADER_EPOCHS, "".join(f"{line}\n" for line in lines).encode())
    write_offsets(
        files,
        data / LOG_START_OFFSETS,
        [
            ((partition.topic, number), partition.log_start_offset)
            for (_, number), partition in cut.partitions.items()
        ],
    )
    record = {"boot_id": "", "leader_epoch": leader_epoch}
    files.create_file(data / "start-record", json.dumps(record).encode())
    return {name: rows_of(store_bytes(store, get)) for name, store in cut.stores.items()}
