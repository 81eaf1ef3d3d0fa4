"""Start the process that runs SQL statements, without pandas: ``python -m stele.sql.start MEMORY_BYTES THREADS``."""

from __future__ import annotations

import sys


class _WithoutPandas:
    """Where pandas is installed, Arrow and DuckDB import it, for nothing that is done here: half of the time of a start."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def main() -> None:
    sys.meta_path.insert(0, _WithoutPandas)
    from .worker import main as run

    run()


if __name__ == "__main__":
    main()
