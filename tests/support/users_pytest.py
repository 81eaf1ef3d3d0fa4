"""pytest as a user has it: with the plugin of Stele.

Plugins that only the environment of these tests has are left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# To import them takes most of a run.
_OF_THIS_ENVIRONMENT = ("anyio", "locust", "schemathesis", "xdist")


def run_users_tests(folder: Path, *, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run the tests in ``folder``. Raises ``subprocess.TimeoutExpired``."""
    without = [f"-pno:{plugin}" for plugin in _OF_THIS_ENVIRONMENT]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *without, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
