"""Makes ``spark.read.format("stele")`` work without registration.

PySpark searches installed packages whose names begin with ``pyspark_`` for data sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stele.spark.source import SteleDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # Imported on first use, because every lookup of PySpark imports all such packages.
    if name != "DefaultSource":
        raise AttributeError(f"module 'pyspark_stele' has no attribute {name!r}")
    from stele.spark.source import SteleDataSource

    return SteleDataSource
