"""A run of pytest in a process of its own, with plugins of this suite and without those that are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
# A hang of the inner run ends the test as well.
_TIMEOUT_S = 120


def run_pytest(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """Write ``files``, code by the name of the module, into the folder, and run pytest there."""
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": str(_ROOT),
            "PYTEST_ADDOPTS": "",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
