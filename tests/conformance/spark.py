"""How tests run the jobs of ``spark_jobs/`` with Spark's own Kafka connector."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.clients import DRIVERS, SPARK

JOBS = Path(__file__).parent / "spark_jobs"


def spark_version() -> str:
    """Return the version of Spark and of its connector."""
    return (DRIVERS / SPARK / "requirements.txt").read_text().strip().partition("==")[2]


def job_command(home: Path, job: str, *arguments: str) -> list[str]:
    """Return the command that runs ``job`` with the directory of the jars and ``arguments``."""
    return [str(home / "venv" / "bin" / "python"), str(JOBS / job), str(home / "jars"), *arguments]
