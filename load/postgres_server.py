"""Run a PostgreSQL server for a test or a benchmark, in a temporary directory."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg2

from .server_start import free_ports

# PostgreSQL refuses to run as root; these are there on every system.
_UNPRIVILEGED = ("postgres", "nobody")
_START_S = 120


class PostgresMissing(Exception):
    """PostgreSQL is not installed; the text says how to install it."""


def find_bin() -> Path:
    """The directory of initdb and postgres.

    STELE_TEST_POSTGRES_BIN, PATH, Debian's, or the PyPI package pgserver's.

    Raises PostgresMissing.
    """
    given = os.environ.get("STELE_TEST_POSTGRES_BIN")
    if given:
        return Path(given)
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    for directory in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (directory / "initdb").exists():
            return directory
    packaged = packaged_bin()
    if packaged is not None:
        return packaged
    raise PostgresMissing("no PostgreSQL is installed: apt-get install postgresql, or pip install pgserver")


def packaged_bin() -> Path | None:
    spec = importlib.util.find_spec("pgserver")
    if spec is None or spec.origin is None:
        return None
    directory = Path(spec.origin).parent / "pginstall" / "bin"
    return directory if (directory / "initdb").exists() else None


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in names)


class PostgresServer:
    """Started in a ``with``; ``kill`` and ``start`` again as often as a test likes.

    Its files are in a new directory in ``parent``, which every user may enter. With ``primary``, the connection
    string of a server that runs, it is a standby of it with the application name ``standby``.

    The servers of a process begin as copies of one database, because to make one costs a second of CPU time.
    ``own_identity`` has another one made, with a ``system_identifier`` of its own.
    """

    def __init__(
        self,
        bin_dir: Path,
        *,
        parent: Path = Path("/tmp"),
        primary: str | None = None,
        own_identity: bool = False,
        **settings: str,
    ) -> None:
        self._bin = bin_dir
        self._home = Path(tempfile.mkdtemp(prefix="stele-postgres-", dir=parent))
        self._user = _user()
        self._as: dict[str, Any] = (
            {} if self._user is None else {"user": self._user, "group": "nogroup", "extra_groups": []}
        )
        self._settings = {
            "wal_level": "logical",
            "max_wal_senders": "10",
            "max_replication_slots": "10",
            "max_connections": "50",
            "shared_buffers": "32MB",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._home),
            **settings,
        }
        self._process: subprocess.Popen[Any] | None = None
        (self.port,) = free_ports(1)
        if self._user is not None:
            shutil.chown(self._home, self._user)
            if not all(parent.stat().st_mode & 0o001 for parent in bin_dir.parents):
                # A package in a checkout, which lies where only root may look.
                package = bin_dir.parents[1 if bin_dir.parent.name == "pginstall" else 0]
                for part in (package, package.with_name(f"{package.name}.libs")):
                    if part.exists():
                        shutil.copytree(part, self._home / part.name, symlinks=True)
                self._bin = self._home / package.name / bin_dir.relative_to(package)
        self._home.chmod(0o755)
        if primary is not None:
            self.follow(primary)
        elif own_identity:
            self._make_database()
        else:
            self._run("cp", "-a", str(_database(bin_dir)), "data")

    def follow(self, primary: str) -> None:
        """Become a standby of ``primary``, a connection string, at the next start; what it had is deleted."""
        if (self._home / "data").exists():
            shutil.rmtree(self._home / "data")
        if (self._bin / "pg_basebackup").exists():
            how = "--pgdata data --checkpoint fast --no-sync"
            self._run(f"{self._bin}/pg_basebackup", *how.split(), "--dbname", primary)
        else:
            self._copy(primary)
        self.rejoin(primary)

    def _copy(self, primary: str) -> None:
        """Do what pg_basebackup does, for a server of this machine that nobody uses; packages of npm lack that program."""
        with committing(primary) as cursor:
            cursor.execute("SELECT current_setting('data_directory'), pg_backup_start('copy', true)")
            self._run("cp", "-a", cursor.fetchone()[0], "data")
            cursor.execute("SELECT labelfile FROM pg_backup_stop()")
            (label,) = cursor.fetchone()
        data = self._home / "data"
        (data / "backup_label").write_text(label)
        if self._user is not None:
            shutil.chown(data / "backup_label", self._user)
        (data / "postmaster.pid").unlink()
        for slot in (data / "pg_replslot").iterdir():
            shutil.rmtree(slot)

    def rejoin(self, primary: str, **settings: str) -> None:
        """Become a standby of ``primary`` at the next start, with what it has; ``settings`` are added."""
        (self._home / "data" / "standby.signal").touch()
        self.configure(primary_conninfo=f"{primary}?application_name=standby", **settings)

    def configure(self, **settings: str) -> None:
        """Change settings for the next start."""
        self._settings.update(settings)

    def _make_database(self) -> None:
        how = "--pgdata data --username postgres --auth trust --no-sync --encoding UTF8 --locale C"
        self._run(f"{self._bin}/initdb", *how.split())

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [program, *arguments], cwd=self._home, capture_output=True, text=True, check=False, **self._as
        )
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self._home)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The process id of the server. Raises RuntimeError if it is not running."""
        if self._process is None:
            raise RuntimeError("PostgreSQL is not running")
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")

    def promote(self) -> None:
        """Make a standby a primary."""
        self.run("SELECT pg_promote()")

    def start(self) -> None:
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with (self._home / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", "data", "-p", str(self.port), *options],
                cwd=self._home,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as,
            )
        self._process = process
        give_up_s = time.monotonic() + _START_S
        while True:
            try:
                psycopg2.connect(self.dsn).close()
            except psycopg2.OperationalError:
                assert process.poll() is None, self.log
                assert time.monotonic() < give_up_s, self.log
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """As systemd stops it: fast, and clean."""
        self._end(signal.SIGINT)

    def stop_immediately(self) -> None:
        """Without a checkpoint, so that the next start recovers as after a crash."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def kill(self) -> None:
        """kill -9 of the server and its children.

        Each child has a session of its own.
        """
        assert self._process is not None
        # One that it starts now would outlive it, and its shared memory keeps the next server from starting.
        self._process.send_signal(signal.SIGSTOP)
        children = [pid for pid, parent in _parents() if parent == self._process.pid]
        self._process.kill()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._process.wait(60)
        while any(map(_runs, children)):
            time.sleep(0.01)
        self._process = None
        (self._home / "data" / "postmaster.pid").unlink(missing_ok=True)

    def run(self, query: str, given: object = None) -> list[tuple[Any, ...]]:
        """One statement, in a transaction of its own."""
        with committing(self.dsn) as cursor:
            cursor.execute(query, given)
            return cursor.fetchall() if cursor.description else []

    def connect(self) -> Any:
        return psycopg2.connect(self.dsn)


@contextmanager
def committing(dsn: str) -> Generator[Any]:
    """Give a cursor of a connection of its own, each statement of which is a transaction."""
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor


def _runs(pid: str) -> bool:
    """Return whether a process has not ended yet; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _parents() -> Iterator[tuple[str, int]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # After the name, which may hold anything: state and parent.
            yield stat.parent.name, int(stat.read_text().rpartition(")")[2].split()[1])


@functools.cache
def _database(bin_dir: Path) -> Path:
    """Return the directory of a database that has not been started."""
    home = PostgresServer(bin_dir, own_identity=True)._home
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return home / "data"
