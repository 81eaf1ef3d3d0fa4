"""Classes of Protobuf messages, as protoc generates them, from texts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles


def message_classes(texts: Mapping[str, str]) -> dict[str, type[Any]]:
    """Return the classes of all messages in files, by their full names."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        output = folder / "set"
        known = files("grpc_tools") / "_proto"
        arguments = [
            "protoc",
            f"-I{folder}",
            f"-I{known}",
            "--include_imports",
            f"--descriptor_set_out={output}",
        ]
        assert protoc.main([*arguments, *texts]) == 0
        described = FileDescriptorSet.FromString(output.read_bytes())
    pool = DescriptorPool()
    for file in described.file:
        pool.Add(file)  # pyright: ignore[reportUnknownMemberType]
    return GetMessageClassesForFiles(list(texts), pool)
