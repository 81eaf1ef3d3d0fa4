"""Run the tests in several processes, which are forked when the tests have been collected.

``--processes N`` does so; 0 or 1 leaves the tests in this process, for a debugger. To collect takes as long as to run
a hundred files, and each process of pytest-xdist collects all of them.

A process takes the tests of a file, one file after the other in the order of the collection. The tests of
``TOGETHER`` count as one file. If a process ends during a test, the test has failed, and a new process goes on.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NoReturn, cast

import pytest
from _pytest.runner import runtestprotocol

# A browser, and a virtual machine for Java that has run Spark once, which costs 20 s of CPU time in each process.
TOGETHER = ("tests/console/", "tests/integration/spark/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, metavar="N", help="run tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if option.processes < 2 or option.collectonly or option.usepdb or session.testsfailed:
        return None
    if (threads := threading.active_count()) > 1:
        raise pytest.UsageError(f"what the tests import has started {threads - 1} threads, which no fork has")
    _Run(session, option.processes).run()
    return True


def _file_of(item: pytest.Item) -> str:
    file = item.nodeid.partition("::")[0]
    return next((directory for directory in TOGETHER if file.startswith(directory)), file)


def _plugin(config: pytest.Config, name: str) -> Any:
    return config.pluginmanager.getplugin(name)


class _Worker:
    """A process, and the places in the collection of the tests that it has to run: the first one runs."""

    def __init__(self, connection: Connection, pid: int, tests: list[int]) -> None:
        self.connection = connection
        self.pid = pid
        self.tests = deque(tests)


class _Run:
    def __init__(self, session: pytest.Session, processes: int) -> None:
        self._session = session
        self._numbers = count()
        files: dict[str, list[int]] = {}
        for place, item in enumerate(session.items):
            files.setdefault(_file_of(item), []).append(place)
        self._files = deque(files.values())
        self._processes = min(processes, len(files))
        self._workers: dict[Connection, _Worker] = {}
        # Before the forks, because each process has a directory in it.
        self._temporary = cast("Any", session.config)._tmp_path_factory.getbasetemp()
        if terminal := _plugin(session.config, "terminalreporter"):
            # The tests of several files come in turns.
            terminal.showfspath = False

    def run(self) -> None:
        """Raises ``pytest.Session.Failed`` or ``Interrupted`` as pytest's own loop does."""
        try:
            for _ in range(self._processes):
                self._fork([])
            while self._workers:
                for ready in wait(list(self._workers)):
                    self._serve(self._workers[cast("Connection", ready)])
        finally:
            # Those that are left end after their test: nobody listens.
            for worker in self._workers.values():
                worker.connection.close()
            for worker in self._workers.values():
                os.waitpid(worker.pid, 0)

    def _fork(self, tests: list[int]) -> None:
        number = next(self._numbers)
        ours, theirs = Pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *self._workers):
                connection.close()
            _Forked(self._session, theirs, tests).end(self._temporary / f"process-{number}")
        theirs.close()
        self._workers[ours] = _Worker(ours, pid, tests)

    def _serve(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._end(worker)
            return
        hook = self._session.config.hook
        if message is None:
            tests = self._files.popleft() if self._files else []
            worker.tests.extend(tests)
            # It may end at any time, which is noticed above.
            with suppress(ConnectionError):
                worker.connection.send(tests)
        elif isinstance(message, dict):
            hook.pytest_warning_recorded.call_historic(kwargs=cast("dict[str, Any]", message))
        else:
            config = self._session.config
            reports = [hook.pytest_report_from_serializable(config=config, data=data) for data in message]
            self._report(worker, reports)

    def _report(self, worker: _Worker, reports: list[pytest.TestReport]) -> None:
        """Report the test that the process has run."""
        item = self._session.items[worker.tests.popleft()]
        hook = self._session.config.hook
        for report in reports:
            assert report.nodeid == item.nodeid
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _end(self, worker: _Worker) -> None:
        worker.connection.close()
        del self._workers[worker.connection]
        _, status = os.waitpid(worker.pid, 0)
        if not worker.tests and status == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        if not worker.tests:
            raise RuntimeError(f"a process ended with {code} after its tests")
        item = self._session.items[worker.tests[0]]
        why = f"the process of this test ended with {code}; what it wrote is in the output of pytest"
        self._report(worker, [pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")])
        if worker.tests or self._files:
            self._fork(list(worker.tests))


class _Forked:
    """The plugin of a forked process, which tells what happens."""

    def __init__(self, session: pytest.Session, connection: Connection, tests: list[int]) -> None:
        self._session = session
        self._connection = connection
        self._first = tests

    def end(self, temporary: Any) -> NoReturn:
        """Run tests until there are no more, and end this process."""
        code = 1
        try:
            self._prepare(temporary)
            for item, after in pairwise(chain(self._items(), (None,))):
                assert item is not None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            code = 0
        except (EOFError, ConnectionError, KeyboardInterrupt):
            # The run ends before its time.
            cast("Any", self._session)._setupstate.teardown_exact(None)
        except BaseException:  # noqa: BLE001 (what pytest calls an internal error)
            traceback.print_exc(file=sys.__stderr__)
        finally:
            threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            atexit._run_exitfuncs()
            os._exit(code)

    def _prepare(self, temporary: Any) -> None:
        # What the parent has registered is for its own end.
        atexit._clear()
        config = self._session.config
        config.pluginmanager.register(self, "forked-process")
        if capture := _plugin(config, "capturemanager"):
            # With files of its own.
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
        temporary.mkdir(mode=0o700)
        cast("Any", config)._tmp_path_factory._basetemp = temporary

    def _items(self) -> Iterator[pytest.Item]:
        tests = self._first
        while True:
            for place in tests:
                yield self._session.items[place]
            self._connection.send(None)
            tests = self._connection.recv()
            if not tests:
                return

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        hook, config = item.config.hook, item.config
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        self._connection.send([hook.pytest_report_to_serializable(config=config, report=r) for r in reports])
        return True

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        if when == "runtest":
            # Without its source, which cannot be sent.
            what, where = warning_message.category, (warning_message.filename, warning_message.lineno)
            sent = warnings.WarningMessage(str(warning_message.message), what, *where)
            message = {"warning_message": sent, "when": when, "nodeid": nodeid, "location": location}
            self._connection.send(message)
