"""Every name that a page puts in backticks exists, and those in commands that no test runs.

They are modules, files, settings, series, routes, commands and options.

A failure names the page, the line, the claim and what to do. A name of somebody
else's program, which this repository cannot know, stands in ``FOREIGN`` with its owner.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from starlette.routing import Route

from app.settings import SETTINGS
from tests.integration import test_doc_examples
from tests.support import code_names
from tests.support.code_names import folders, is_module, resolves, tracked, words
from tests.support.documents import PAGES, ROOT, Place, Span, name, spans
from tests.support.http_application import application
from tests.support.simulated_time import SimulatedClock

# Names that are not ours, by whose they are. Remove one that no page uses.
FOREIGN = {
    "Apache Kafka": ("kafka-dump-log.sh", "KAFKA_OPTS"),
    "Kafka's client libraries": (
        "KafkaJSProtocolError",
        "KafkaConnectionError",
        "IllegalSaslStateError",
        "KafkaTimeoutError",
        "KafkaShareConsumer",
        "schema.registry.url",
        "PUT /config/{subject}",
    ),
    "Debezium": (
        "tombstones.on.delete",
        "binary.handling.mode",
        "interval.handling.mode",
        "hstore.handling.mode",
        "unavailable.value.placeholder",
        "schema.name.adjustment.mode",
        "field.name.adjustment.mode",
        "include.unknown.datatypes=false",
        "ExtractNewRecordState",
    ),
    "Apache Iceberg": ("stele.stele.orders.snapshots", "rest.auth.type=basic"),
    "object stores, whose variables the library of the stores reads": (
        "AWS_ROLE_ARN",
        "AWS_SERVER_SIDE_ENCRYPTION",
        "AWS_SSE_KMS_KEY_ID",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_TENANT_ID",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
    ),
    "Kafka Connect and Kafka Streams": (
        "processing.guarantee",
        "exactly_once_v2",
        "value.converter.auto.register.schemas=false",
    ),
    "Confluent": (
        "AvroConverter",
        "io.confluent.connect.json.JsonSchemaConverter",
        "io.confluent.connect.protobuf.ProtobufConverter",
    ),
    "OpenTelemetry": ("OTEL_TRACES_SAMPLER",),
    "Docker": ("--ulimit nofile=",),
    "PostgreSQL": ("synchronous_standby_names", "commit_delay", "commit_siblings"),
    "Spark": (
        "--packages",
        "--jars",
        "--py-files",
        "addArtifacts",
        "Trigger.AvailableNow",
        "spark.speculation",
        "query.lastProgress",
    ),
    "the topics of an example": ("pg.public.items",),
    # Made by a command that the same sentence names.
    "a run": ("load/reports/", "load/results/DATE.json"),
}


def foreign() -> set[str]:
    return {word for group in FOREIGN.values() for word in group}


# ── what a span claims, and what is wrong with it ──


def _setting(text: str) -> str | None:
    variable = re.match(r"STELE_[A-Z0-9_]+", text)
    assert variable
    field = variable[0].removeprefix("STELE_").lower()
    if field in SETTINGS or variable[0] in words():
        return None
    return "no setting and no code reads this variable; see app/settings.py for the names there are"


def _series(text: str) -> str | None:
    known = {series for metric in code_names.metrics() for series in metric.series}
    if text.endswith("…"):
        return None if any(series.startswith(text[:-1]) for series in known) else "no series begins like this"
    if text in known or text in words():
        return None
    return "no metric of app has this name; series are declared in app/api/metrics/collectors.py and app/cdc/metrics.py"


@cache
def routes() -> tuple[tuple[str, frozenset[str]], ...]:
    """Return each path of the HTTP listener with its methods."""

    async def collect(path: Path) -> list[tuple[str, frozenset[str]]]:
        async with application(path, SimulatedClock()) as app:
            pages = [
                (route.path, frozenset(route.methods or ()))
                for route in app.router.routes
                if isinstance(route, Route)
            ]
            operations = app.openapi()["paths"]
        return pages + [(path, frozenset(map(str.upper, methods))) for path, methods in operations.items()]

    with tempfile.TemporaryDirectory() as folder:
        return tuple(asyncio.run(collect(Path(folder))))


def _route(text: str) -> str | None:
    match = re.match(r"(?:(GET|POST|PUT|PATCH|DELETE|HEAD) )?(/[^?\s]*)", text)
    assert match
    method, path = match.groups()
    segments = path.split("/")
    for template, methods in routes():
        expected = template.split("/")
        # A literal segment in the page may stand for a parameter, never the reverse.
        is_path = len(expected) == len(segments) and all(
            "{" in there or there == here or here.startswith("{") or "…" in here
            for there, here in zip(expected, segments, strict=True)
        )
        if is_path and (method is None or method in methods):
            return None
    return "the HTTP listener has no such route; GET /openapi.json lists them"


def _command(text: str) -> str | None:
    return code_names.command_problem(text)


def _make(text: str) -> str | None:
    target = re.match(r"make ([a-z]+)", text)
    assert target
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return None if target[1] in targets else "the Makefile has no such target; `make` lists them"


def _python_module(text: str) -> str | None:
    match = re.match(r"\S*python3? -m ([\w.]+)", text)
    assert match
    return None if is_module(match[1]) else "no such module can be run"


def _extra(text: str) -> str | None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"stele-broker\[([^\]]*)\]", text)
    unknown = {extra for group in named for extra in group.split(",")} - set(extras)
    return f"pyproject.toml has no extra {', '.join(sorted(unknown))}" if unknown else None


def _option(text: str) -> str | None:
    option = text.split()[0].partition("=")[0]
    return None if option in words() else "no command, script or tool of the repository has this option"


def _exists(text: str, page: Path) -> bool:
    pattern = re.sub(r"<[^>]*>|…", "*", text).rstrip("/")
    if "*" in pattern:
        return any(Path(file).match(pattern) for file in (*tracked(), *folders()))
    candidates = (ROOT, page.parent, ROOT / "clients" / "python")
    if any((base / pattern).exists() for base in candidates):
        return True
    # A file whose folder the sentence names, and a file that the code names.
    return any(file == pattern or file.endswith(f"/{pattern}") for file in tracked()) or (
        "/" not in pattern and pattern in words()
    )


_TOP = {Path(file).parts[0] for file in tracked() if "/" in file}
_SUFFIXES = "py|md|json|yaml|toml|txt|sh|bash|log|sqlite|png|js|css|html|xml|c"


def _dotted(text: str) -> str | None:
    if text.partition(".")[0] in {*code_names.PACKAGES} and (resolves(text) or text in words()):
        return None
    if text.partition(".")[0] in {*code_names.PACKAGES}:
        return "no module, attribute or string of the code has this name"
    # ``client.group`` is an attribute of a local name; three parts are a configuration or a path of modules.
    owner, _, attribute = text.rpartition(".")
    if text in words() or ("." not in owner and attribute in words()):
        return None
    return "the code does not know this name"


def _identifier(text: str) -> str | None:
    return None if text in words() else "the code does not know this name"


def _is_name(text: str) -> bool:
    """Tell a name of code from a word: it has an underscore, two humps, or a digit and a capital."""
    return bool(re.search(r"\w_\w|^_|[a-z][A-Z]|^[A-Z][a-z]+[A-Z]", text)) and bool(
        re.fullmatch(r"\w+", text)
    )


# The first pattern that matches a span decides what it claims.
CLAIMS: tuple[tuple[str, Callable[[str], str | None]], ...] = (
    (r"STELE_[A-Z0-9_]+", _setting),
    (r"stele_[a-z_]+…?$", _series),
    (r"(?:GET|POST|PUT|PATCH|DELETE|HEAD) /", _route),
    (r"/(?:v1|docs|healthz|readyz|metrics|openapi)", _route),
    (r"stele [a-z]", _command),
    (r"(?:\.venv/bin/)?stele [a-z]", _command),
    (r"make [a-z]+", _make),
    (r"\S*python3? -m ", _python_module),
    (r"pip install '", _extra),
    (r"--[a-z]", _option),
)


def problem(span: Span) -> str | None:
    """Return why ``span`` cannot be true, or None."""
    text = span.text
    if text in foreign():
        return None
    for pattern, check in CLAIMS:
        if re.match(pattern, text):
            return check(text)
    if re.fullmatch(rf"[\w./*<>…-]+\.(?:{_SUFFIXES})", text) or (
        re.fullmatch(r"\.?[\w./*<>…-]+/[\w./*<>…-]*", text)
        and text.lstrip(".").split("/")[0] in _TOP | {"stele"}
    ):
        return None if _exists(text, span.place.page) else "no file or folder of the repository has this name"
    called = re.match(r"@?([A-Za-z_][\w.]*)(?:\(|=|$)", text)
    if called is None:
        return None
    target = called[1].rstrip(".")
    if "." in target:
        is_call = text[called.end() - 1 : called.end()] == "("
        return _identifier(target.rpartition(".")[2]) if is_call else _dotted(target)
    return _identifier(target) if _is_name(target) else None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_name_in_backticks_exists(page: Path) -> None:
    problems = [f"{span}: {reason}" for span in spans(page) if (reason := problem(span))]
    advice = "\nCorrect the page, or name the owner of a name that is not ours in FOREIGN of this test."
    assert not problems, "\n" + "\n".join(problems) + advice


@pytest.mark.parametrize(
    "claim",
    [
        "STELE_NO_SUCH_SETTING",
        "STELE_NO_SUCH_SETTING=json",
        "stele_no_such_series_total",
        "stele_nothing_…",
        "GET /v1/nowhere",
        "DELETE /v1/cluster",
        "/v1/groups/billing/nowhere",
        "stele nowhere",
        "stele topics nowhere",
        "stele topics create orders --nowhere",
        "stele serve --nowhere",
        "make nowhere",
        "python -m load.nowhere",
        ".venv/bin/python -m stele.nowhere",
        "pip install 'stele-broker[nowhere]'",
        "--no-such-option-anywhere",
        "app/nowhere.py",
        "app/nowhere/",
        "nowhere.py",
        "tests/unit/nowhere",
        "app.nowhere",
        "stele.nowhere",
        "stele.wire.framing.nowhere",
        "NoSuchClass",
        "no_such_function()",
        "no_such_argument=True",
        "client.no_such_method(1)",
        "retention.nowhere.ms",
    ],
)
def test_a_name_that_does_not_exist_is_noticed(claim: str) -> None:
    assert problem(Span(Place(ROOT / "README.md", 1), claim))


def test_the_names_in_commands_that_are_not_run_exist() -> None:
    problems = [
        f"{place}: {command}: {reason}"
        for block in test_doc_examples.SHELL
        for place, command in test_doc_examples.commands(block)
        if test_doc_examples.reason_not_to_run(command) and (reason := _problem_of_command(command))
    ]
    assert not problems, "\n" + "\n".join(problems)


def _problem_of_command(command: str) -> str | None:
    if command.startswith("export "):
        assigned = command.removeprefix("export ")
        variable = assigned.partition("=")[0]
        return _setting(assigned) if variable.startswith("STELE_") else _identifier(variable)
    return next((check(command) for pattern, check in CLAIMS if re.match(pattern, command)), None)


def test_no_foreign_name_is_listed_that_no_page_uses() -> None:
    used = {span.text for page in PAGES for span in spans(page)}
    assert foreign() <= used, f"remove from FOREIGN: {sorted(foreign() - used)}"
