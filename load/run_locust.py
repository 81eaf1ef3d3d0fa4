"""Run Locust headless against its own broker for a bounded time, with a report.

``LOAD_SECONDS`` (20) and ``LOAD_USERS`` (20) bound it; both kinds of user get half.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from stele.broker_process import run_broker

HERE = Path(__file__).resolve().parent


def main() -> int:
    seconds = int(os.environ.get("LOAD_SECONDS", "20"))
    users = int(os.environ.get("LOAD_USERS", "20"))
    reports = HERE / "reports"
    reports.mkdir(exist_ok=True)
    report = reports / f"locust-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.html"
    with run_broker(arguments=("--log-level", "warning")) as broker:
        print(f"{users} users for {seconds} s against {broker.http_url} and {broker.binary_url}", flush=True)
        command = [sys.executable, "-m", "locust", "--locustfile", str(HERE / "locustfile.py"), "--headless"]
        command += ["--host", broker.http_url, "--users", str(users), "--spawn-rate", str(users)]
        command += ["--run-time", f"{seconds}s", "--stop-timeout", "5s", "--html", str(report)]
        command += ["--only-summary", "--exit-code-on-error", "1", *sys.argv[1:]]
        environment = {**os.environ, "LOAD_BINARY_URL": broker.binary_url}
        code = subprocess.run(command, env=environment, check=False).returncode
    print(f"report: {report.relative_to(HERE.parent)}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
