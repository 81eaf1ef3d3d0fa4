"""Is there what Spark needs, before Spark says it in a hundred lines: PySpark, and a Java that it starts on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

# Spark 4 runs on these; newer ones lack modules that it asks for.
JAVA_VERSIONS = (17, 21)
_INSTALL = (
    "apt install openjdk-17-jre-headless (Debian, Ubuntu), dnf install java-17-openjdk-headless (Fedora, RHEL), "
    "brew install openjdk@17 (macOS), or set JAVA_HOME to one that is installed"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_START_TIMEOUT_S = 20.0


class SparkMissingError(RuntimeError):
    """Spark can not be started here; the message is one line and says what to install."""


def require_spark() -> None:
    """Raises ``SparkMissingError`` if PySpark, or a Java for it, is not installed."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise SparkMissingError("PySpark is not installed: pip install 'stele-broker[spark]'")
    require_java()


def require_java() -> int:
    """The version of the Java that Spark will start.

    Raises:
        SparkMissingError: there is none, or none that Spark runs on.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = " or ".join(map(str, JAVA_VERSIONS))
    if java is None:
        raise SparkMissingError(f"Spark needs Java {wanted}, and there is none: {_INSTALL}")
    try:
        told = subprocess.run(  # noqa: S603 - the program that Spark will start
            [java, "-version"], capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        where = "JAVA_HOME points to" if home else "the PATH has"
        raise SparkMissingError(
            f"Spark needs Java {wanted}, and what {where}, {java}, does not start ({error}): {_INSTALL}"
        ) from error
    found = _VERSION.search(told.stderr + told.stdout)
    if found is None or int(found[1]) not in JAVA_VERSIONS:
        version = "of an unknown version" if found is None else f"Java {found[1]}"
        raise SparkMissingError(f"Spark needs Java {wanted}, and {java} is {version}: {_INSTALL}")
    return int(found[1])
