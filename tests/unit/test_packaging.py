"""What installs of the checkout contain."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_an_editable_install_copies_no_module(tmp_path: Path) -> None:
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel:editable",
        "--directory",
        str(tmp_path),
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    copied = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert copied == ["_stele_broker.pth"]
