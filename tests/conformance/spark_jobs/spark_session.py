"""Start Spark with its own Kafka connector."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def start_spark(jars: str, **configs: str) -> Any:
    """Return a session of two local cores with the jars of this directory.

    Only the results of a job go to the standard output.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    spark: Any = (
        builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in Path(jars).glob("*.jar")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=configs)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def client_options(bootstrap: str, properties: dict[str, str] | None = None) -> dict[str, str]:
    """Return the options of a source or a sink that connects with these properties of Kafka's clients."""
    return {
        f"kafka.{name}": value
        for name, value in {"bootstrap.servers": bootstrap, **(properties or {})}.items()
    }
