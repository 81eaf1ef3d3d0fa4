"""The documents say what the code does: what is missing, stale or broken there fails here."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from stele.wire import framing, messages
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode

from app.security.policy import LISTENERS
from app.settings import SETTINGS, ListenerSettings
from app.storage.topic_config import CONFIG_ENTRIES, TopicConfig
from tests.support.code_names import metrics, tracked
from tests.support.documents import DOCS, PAGES, ROOT, Place, anchors, links, name, prose

SOURCES = sorted(
    path
    for folder in ("app", "clients", "load", "tests", "docs")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".md"}
)
PROTOCOL = (DOCS / "formats" / "binary-protocol.md").read_text()


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def section(page: Path, heading: str) -> str:
    return re.split(r"^## ", prose(page).split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]


# ── settings.md ──


def shown(default: object) -> str:
    if default is None:
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_every_setting_is_documented_with_its_default_and_reason() -> None:
    page = (DOCS / "settings.md").read_text()
    rows = {
        f"| `STELE_{name.upper()}` | {shown(setting.default)} | {setting.info.description} |"
        for name, setting in SETTINGS.items()
        if setting.group not in LISTENERS or setting.field not in ListenerSettings.model_fields
    }
    for field, info in ListenerSettings.model_fields.items():
        defaults = dict.fromkeys(shown(SETTINGS[f"{listener}_{field}"].default) for listener in LISTENERS)
        rows.add(f"| `STELE_<LISTENER>_{field.upper()}` | {', '.join(defaults)} | {info.description} |")
    assert rows - set(page.splitlines()) == set(), "docs/settings.md lacks these rows"


def test_the_page_of_settings_begins_with_the_ten_that_matter_first() -> None:
    first, *others = re.split(r"^## ", (DOCS / "settings.md").read_text(), flags=re.MULTILINE)[1:]
    assert first.startswith("Ten settings that matter first\n")
    assert len(re.findall(r"^\| `STELE_", first, re.MULTILINE)) == 10
    assert others[0].startswith("Broker settings\n")


def test_every_topic_configuration_is_documented_with_its_default() -> None:
    page = (DOCS / "settings.md").read_text()
    defaults = TopicConfig().as_strings()
    rows = [
        f"| `{config}` | `{defaults[config]}` | {entry.description} |"
        for config, entry in CONFIG_ENTRIES.items()
    ]
    assert [row for row in rows if row not in page] == [], "docs/settings.md lacks these rows"


def test_no_setting_is_documented_that_does_not_exist() -> None:
    named = set(re.findall(r"`STELE_([A-Z_]+)`", "".join(page.read_text() for page in PAGES)))
    of_the_client = {
        "URL",
        "REGISTRY_URL",
        "USER",
        "PASSWORD",
        "PASSWORD_FILE",
        "NEW_PASSWORD",
        "API_KEY",
        "API_KEY_FILE",
        "CA_FILE",
        "CERTIFICATE_FILE",
        "KEY_FILE",
        *(n for n in named if n.startswith(("CLIENT_", "MIRROR_SECRET_"))),
    }
    assert {n.lower() for n in named - of_the_client} <= set(SETTINGS)


# ── binary-protocol.md ──


def test_every_message_type_has_its_section() -> None:
    headings = [f"### {kind:02X} {kind.name}" for kind in messages.MessageType]
    assert [heading for heading in headings if f"\n{heading}\n" not in PROTOCOL] == []


def test_every_message_type_has_an_example_that_is_that_message() -> None:
    sections = re.split(r"\n### ([0-9A-F]{2}) \w+\n", PROTOCOL)
    seen: set[int] = set()
    for number, section in zip(sections[1::2], sections[2::2], strict=True):
        for example in re.findall(r"```hex\n(.*?)```", section, re.DOTALL):
            frame = bytes.fromhex(example)
            ((frame_type, body),) = framing.FrameReader().feed(frame)
            assert frame_type == int(number, 16)
            is_request = frame_type in messages.REQUESTS
            decode = messages.decode_request if is_request else messages.decode_response
            message = decode(frame_type, body)
            assert message.encode() == frame
            seen.add(frame_type)
    assert seen == {*messages.REQUESTS, *messages.RESPONSES, messages.MessageType.ERROR}


def test_every_error_number_is_in_the_table() -> None:
    rows = [
        f"| {str(int(code)).replace('-', '−')} | `{code.name}` | {'yes' if code.retriable else 'no'} |"
        for code in ErrorCode
        if code is not ErrorCode.NONE
    ]
    assert [row for row in rows if row not in PROTOCOL] == [], "no rows begin so"


# ── segment.md ──


def test_the_example_batch_is_a_batch_and_holds_what_the_page_says() -> None:
    page = (DOCS / "formats" / "segment.md").read_text()
    found = re.search(r"```batch\n(.*?)```", page, re.DOTALL)
    assert found
    batch = bytes.fromhex(found[1])
    header = rb.check_batch(batch)
    assert header.size == len(batch) == 90
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (1041, 1042, 3)
    first, second = rb.decode_records(batch, header)
    assert (first.timestamp, first.key, first.value) == (1763664052224, b"N14228", b"hello")
    assert first.headers == [("h", b"1")]
    assert (second.timestamp, second.key, second.value, second.headers) == (1763664052225, None, None, [])


# ── decisions ──


DECISIONS = section(DOCS / "README.md", "Decisions")


def test_the_list_of_decisions_has_their_titles_and_no_others() -> None:
    listed = dict(re.findall(r"^\| \[\d{4}\]\(adr/([^)]*)\) \| (.*) \|$", DECISIONS, re.MULTILINE))
    titles = {
        path.name: path.read_text().splitlines()[0].partition(" · ")[2]
        for path in (DOCS / "adr").glob("*.md")
    }
    assert listed == titles, "docs/README.md, Decisions: the table and docs/adr differ"


def test_every_number_of_a_decision_is_explained() -> None:
    explained = {int(number) for number in re.findall(r"\b(\d{4})\b", DECISIONS)}
    assert set(range(1, max(explained) + 1)) == explained, "docs/README.md, Decisions: explain each number"


@pytest.mark.parametrize("path", sorted((DOCS / "adr").glob("*.md")), ids=name)
def test_a_decision_has_context_choice_and_price_on_one_page(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.name[:4]} · ")
    for part in ("**Context.**", "**Choice.**", "**Price.**"):
        assert part in text
    # The list of dependencies has as many rows as there are.
    assert len([line for line in text.splitlines() if not line.startswith("| `")]) <= 80


def test_every_decision_that_is_cited_is_in_the_list() -> None:
    # A number that became a note still leads there.
    numbers = set(re.findall(r"^\| \[?(\d{4})\b", DECISIONS, re.MULTILINE))
    cited = {name(path): set(re.findall(r"ADR-(\d{4})", path.read_text())) for path in SOURCES}
    assert {path: found - numbers for path, found in cited.items() if found - numbers} == {}


def test_the_page_on_dependencies_names_those_of_the_project_and_no_others() -> None:
    project = pyproject()["project"]
    declared = [
        *project["dependencies"],
        *(d for extra in project["optional-dependencies"].values() for d in extra),
    ]
    names = {re.split(r"[<>=;\[ ]", d)[0] for d in declared}
    rows = re.findall(
        r"^\| `([a-z0-9-]+)` \|", (DOCS / "adr" / "0004-dependencies.md").read_text(), re.MULTILINE
    )
    assert set(rows) == names
    assert len(rows) == len(set(rows))


# ── links ──


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link.text):
            continue
        file, _, anchor = link.text.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link.place}: links to {link.text}, which does not exist: correct the path"
        if anchor:
            known = ", ".join(sorted(anchors(target)))
            assert anchor in anchors(target), (
                f"{link.place}: links to {link.text}, and {name(target)} has no such heading; it has {known}"
            )


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_fences_and_backticks_come_in_pairs(page: Path) -> None:
    lines = page.read_text().splitlines()
    fences = [number for number, line in enumerate(lines, 1) if line.lstrip().startswith("```")]
    assert len(fences) % 2 == 0, f"{Place(page, fences[-1])}: a code block begins here and does not end"
    for number, line in enumerate(prose(page).splitlines(), 1):
        assert line.count("`") % 2 == 0, f"{Place(page, number)}: a backtick without its other half"


# ── series of /metrics ──


def documented_series() -> dict[str, tuple[Place, set[str]]]:
    """Return each series in the tables of docs/operations.md and docs/cluster.md, with the labels beside it."""
    documented: dict[str, tuple[Place, set[str]]] = {}
    for page in (DOCS / "operations.md", DOCS / "cluster.md"):
        for number, line in enumerate(prose(page).splitlines(), 1):
            if not line.startswith("| `stele_"):
                continue
            series, labels = line.split("|")[1:3]
            for one_series in re.findall(r"`(stele_\w+)`", series):
                documented[one_series] = Place(page, number), set(re.findall(r"`(\w+)`", labels))
    return documented


def test_every_series_is_documented_with_its_labels() -> None:
    rows = documented_series()
    assert len(metrics()) > 50
    for metric in metrics():
        row = next((rows[series] for series in metric.series if series in rows), None)
        assert row, (
            f"{metric.source}: {metric.name} is in no table of docs/operations.md or docs/cluster.md; "
            "add a row with its labels"
        )
        place, labels = row
        missing = set(metric.labels) - labels
        assert not missing, (
            f"{place}: {metric.name} has the labels {sorted(missing)}, too: add them to the row"
        )


def test_no_series_and_no_label_is_documented_that_does_not_exist() -> None:
    declared = {series: metric for metric in metrics() for series in metric.series}
    labels_of_row: dict[Place, set[str]] = {}
    for series, (place, _) in documented_series().items():
        assert series in declared, f"{place}: {series} is declared nowhere in app; correct or remove it"
        labels_of_row.setdefault(place, set()).update(declared[series].labels)
    for place, labels in documented_series().values():
        if labels_of_row[place]:
            stale = labels - labels_of_row[place]
            assert not stale, f"{place}: no series of this row has the labels {sorted(stale)}: correct them"


# ── architecture.md ──

ARCHITECTURE = DOCS / "architecture.md"


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["id"] == "layers")
    layers = [set(re.split(r" [|:] ", layer)) for layer in contract["layers"]]
    rows = re.findall(r"^\| \w+ \| (`.*?`) \|", section(ARCHITECTURE, "Layers"), re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == layers, (
        "docs/architecture.md, Layers: the table and the contract `layers` of pyproject.toml differ"
    )


def test_the_reading_order_passes_every_package() -> None:
    text = section(ARCHITECTURE, "Reading order")
    packages = {name(path.parent) for path in (ROOT / "app").glob("*/__init__.py")}
    missing = {package for package in packages if f"`{package}/" not in text}
    assert not missing, f"docs/architecture.md, Reading order: add a row for {sorted(missing)}"


def test_the_directories_are_those_of_the_repository() -> None:
    listed = set(re.findall(r"^\| `([\w.]+)/` \|", section(ARCHITECTURE, "Directories"), re.MULTILINE))
    present = {file.split("/")[0] for file in tracked() if "/" in file and not file.startswith(".")}
    assert listed == present, "docs/architecture.md, Directories: the table and the repository differ"


def test_the_directories_of_the_tests_are_all_named() -> None:
    text = section(ARCHITECTURE, "Directories")
    present = {"/".join(file.split("/")[:2]) for file in tracked() if re.match(r"tests/\w+/", file)}
    missing = {folder for folder in present if f"`{folder}/`" not in text}
    assert not missing, f"docs/architecture.md, Directories: name {sorted(missing)}"


# ── README, Makefile, containers ──


def test_the_first_screen_of_the_readme_tells_how_to_run_use_and_test_it() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:50])
    assert "make run" in first_screen
    assert "make test" in first_screen
    assert len(re.findall(r"^curl ", first_screen, re.MULTILINE)) == 4


def test_every_make_target_that_is_written_about_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= targets, name(page)


def test_the_changelog_knows_this_version() -> None:
    assert f"## {pyproject()['project']['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_each_container_runs_without_root_and_keeps_its_data_in_a_volume() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    users = [line for line in lines if line.startswith("USER ")]
    stages = [line for line in lines if line.startswith("FROM ") and " AS build" not in line]
    assert users == ["USER 10001:10001"] * len(stages)
    assert "VOLUME /data" in lines
    compose = cast("dict[str, Any]", yaml.safe_load((ROOT / "compose.yaml").read_text()))
    broker = compose["services"]["broker"]
    assert broker["volumes"] == ["data:/data"]
    assert "data" in compose["volumes"]
    assert all(port.startswith("127.0.0.1:") for port in broker["ports"])
    named = [variable.removeprefix("STELE_").lower() for variable in broker["environment"]]
    assert set(named) <= set(SETTINGS)


# ── the index ──


def test_the_index_lists_every_page() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / link.text).resolve() for link in links(index)}
    decisions = DOCS / "adr"
    missing = {
        name(page) for page in DOCS.rglob("*.md") if page not in linked | {index} and page.parent != decisions
    }
    assert not missing, f"docs/README.md: add a row for {sorted(missing)}"


# ── vocabulary.md ──


@pytest.mark.parametrize("heading", ["Terms of Stele's own", "Terms of Kafka and of the field"])
def test_the_terms_are_in_alphabetical_order_and_stand_there_once(heading: str) -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", section(DOCS / "vocabulary.md", heading), re.MULTILINE)
    assert terms == sorted(set(terms), key=str.lower), f"docs/vocabulary.md, {heading}: sort the rows"


def test_every_term_of_our_own_names_its_place_in_the_code() -> None:
    for row in re.findall(
        r"^\| \*\*.*$", section(DOCS / "vocabulary.md", "Terms of Stele's own"), re.MULTILINE
    ):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, f"docs/vocabulary.md: {row}"
        assert cells[3], f"docs/vocabulary.md: {cells[0]} names no class, function or page: add it"
