"""Start the process that runs SQL statements, without pandas: ``python -m stele.sql MEMORY_BYTES THREADS``."""

from __future__ import annotations

import sys
from typing import Any, cast


def main() -> None:
    # Where it is installed, Arrow and DuckDB import it for conversions that are not made here: nearly half of the start.
    cast("dict[str, Any]", sys.modules)["pandas"] = None
    from .worker import main as run

    run()


if __name__ == "__main__":
    main()
