"""Where PySpark looks for data sources: in installed packages whose names begin with ``pyspark_``.

``spark.read.format("stele")`` works because of this, with nothing to register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stele.spark.source import SteleDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: PySpark imports every such package in each of its lookups.
    if name != "DefaultSource":
        raise AttributeError(f"module 'pyspark_stele' has no attribute {name!r}")
    from stele.spark.source import SteleDataSource

    return SteleDataSource
