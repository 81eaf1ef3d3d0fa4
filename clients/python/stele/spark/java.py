"""Checks for PySpark, Java and a Python with this package, with clear errors.

``python -m stele.spark.java`` checks all three.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

# Versions for Spark 4; newer ones lack modules that it needs.
JAVA_VERSIONS = (17, 21)
_INSTALL = (
    "apt install openjdk-17-jre-headless (Debian, Ubuntu), dnf install java-17-openjdk-headless (Fedora, RHEL), "
    "brew install openjdk@17 (macOS), or set JAVA_HOME to one that is installed"
)
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_START_TIMEOUT_S = 20.0
# Spark uses the first of these that is set, in the environment in which its JVM was started.
_PYTHON_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_DEFAULT_PYTHON = "python3"
# PySpark imports every top-level package whose name begins with pyspark_.
_FOUND_BY_NAME = "pyspark_stele"
_FINDS = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({_FOUND_BY_NAME!r}) is None)"


class SparkMissingError(RuntimeError):
    """Spark cannot be started; the message is one line and says what to install."""


def require_spark() -> None:
    """Raise ``SparkMissingError`` if PySpark or a suitable Java is not installed."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise SparkMissingError("PySpark is not installed: pip install 'stele-broker[spark]'")
    require_java()


def require_python() -> str:
    """Return the path of the interpreter in which Spark looks for data sources.

    Spark starts it by name, ``python3`` unless an environment variable names another, and
    not the interpreter that runs the program. If it lacks this package, Spark reports only
    ``DATA_SOURCE_NOT_FOUND``.

    Raises:
        SparkMissingError: the interpreter does not exist, or lacks this package.
    """
    variable = next((name for name in _PYTHON_VARIABLES if os.environ.get(name)), None)
    name = os.environ[variable] if variable else _DEFAULT_PYTHON
    source = variable or "the first python3 on the PATH"
    advice = (
        f"set PYSPARK_PYTHON before the session starts, for example export PYSPARK_PYTHON={sys.executable}"
    )
    interpreter = shutil.which(name)
    if interpreter is None:
        raise SparkMissingError(f"Spark looks for data sources with {name}, which does not exist: {advice}")
    try:
        done = subprocess.run(  # noqa: S603 - the program that Spark will start
            [interpreter, "-c", _FINDS], capture_output=True, timeout=_START_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkMissingError(
            f"Spark looks for data sources with {interpreter}, which does not start ({error}): {advice}"
        ) from error
    if done.returncode:
        raise SparkMissingError(
            f"Spark looks for data sources with {interpreter} ({source}), which does not have"
            f" stele-broker: {advice}"
        )
    return interpreter


def require_java() -> int:
    """Return the version of the Java that Spark will start.

    Raises:
        SparkMissingError: Java is missing, or of a version that Spark does not support.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = " or ".join(map(str, JAVA_VERSIONS))
    if java is None:
        raise SparkMissingError(f"Spark needs Java {wanted}, and there is none: {_INSTALL}")
    try:
        output = subprocess.run(  # noqa: S603 - the program that Spark will start
            [java, "-version"], capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        where = "JAVA_HOME points to" if home else "the PATH has"
        raise SparkMissingError(
            f"Spark needs Java {wanted}, and what {where}, {java}, does not start ({error}): {_INSTALL}"
        ) from error
    match = _VERSION.search(output.stderr + output.stdout)
    if match is None or int(match[1]) not in JAVA_VERSIONS:
        version = "of an unknown version" if match is None else f"Java {match[1]}"
        raise SparkMissingError(f"Spark needs Java {wanted}, and {java} is {version}: {_INSTALL}")
    return int(match[1])


def main() -> None:
    """Check this environment; exit with the first problem."""
    try:
        require_spark()
        interpreter = require_python()
    except SparkMissingError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.write(f"Spark starts here, and finds the data source stele with {interpreter}\n")


if __name__ == "__main__":
    main()
