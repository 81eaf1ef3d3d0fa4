"""A setting comes from the command line, otherwise from the environment, otherwise from its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import SETTINGS, Settings, unknown_settings, unknown_variables

# Tests of names that do not exist.
OF_MADE_UP_NAMES = {"test_doc_names.py", "test_lifecycle.py", "test_settings.py"}

# ``BrokerProcess`` sets what a test asks it for.
TESTS = (*Path("tests").rglob("*.py"), Path("clients/python/stele/broker_process.py"))
# As a variable, an option or an argument, in a dictionary, or with the group in braces.
SET = re.compile(r"STELE_([A-Z0-9_]+)|--([a-z0-9-]+)|\b([a-z0-9_]+)=|\"([a-z0-9_]+)\":|\}_([a-z0-9_]+)")


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STELE_HTTP_PORT", "8081")
    monkeypatch.setenv("STELE_KAFKA_PORT", "9093")
    settings = Settings.model_validate({"http_port": "8082"})
    assert (settings.http.port, settings.kafka.port) == (8082, 9093)
    assert settings.binary.port == SETTINGS["binary_port"].default


def test_what_is_invalid_in_the_environment_counts_unless_the_command_line_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STELE_HTTP_PORT", "none")
    assert Settings.model_validate({"http_port": "8082"}).http.port == 8082
    with pytest.raises(ValidationError, match=r"http\.port"):
        Settings.model_validate({"kafka_port": "9093"})


def test_a_listener_has_what_is_set_for_it_and_the_others_their_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As for pydantic, the case of a variable does not matter.
    monkeypatch.setenv("stele_kafka_tls_client_auth", "required")
    # A variable that begins like those of a listener, and is none of them.
    monkeypatch.setenv("STELE_HTTP", "{}")
    settings = Settings.model_validate({"kafka_authentication": "optional"})
    assert settings.kafka.model_dump(exclude_defaults=True) == {
        "port": 9092,
        "authentication": "optional",
        "tls_client_auth": "required",
    }
    assert settings.listener("http") == Settings.model_fields["http"].default


def test_a_name_that_does_not_exist_is_no_setting() -> None:
    with pytest.raises(ValidationError, match="there is no setting kafka"):
        Settings.model_validate({"kafka": {"port": 1}})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("autorization", "there is no setting autorization; did you mean authorization?"),
        ("AUTHORIZATION", "there is no setting AUTHORIZATION; did you mean authorization?"),
        ("qqq", "there is no setting qqq; docs/settings.md lists all settings"),
    ],
)
def test_an_unknown_setting_is_named_with_the_one_that_was_probably_meant(name: str, said: str) -> None:
    assert unknown_settings(["http_port", name]) == [said]


def test_a_variable_that_nothing_reads_is_named() -> None:
    assert unknown_variables({"STELE_AUTORIZATION": "acls", "PATH": "", "STELE_HTTP_PORT": "1"}) == [
        "nothing reads the variable STELE_AUTORIZATION; did you mean STELE_AUTHORIZATION?"
    ]


def test_every_variable_that_the_sources_read_is_known() -> None:
    sources = [
        *Path("app").rglob("*.py"),
        *Path("clients/python/stele").rglob("*.py"),
        *Path("tests").rglob("*.py"),
    ]
    read = {
        name
        for path in sources
        if path.name not in OF_MADE_UP_NAMES
        for name in re.findall(r"\"(STELE_[A-Z0-9_]+)\b", path.read_text())
        if not name.endswith("_")
    }

    assert len(read) > 50
    assert unknown_variables(read) == []


def test_each_setting_is_set_by_a_test() -> None:
    text = "\n".join(path.read_text() for path in TESTS if path.name != "test_settings.py")
    found = {name.lower().replace("-", "_") for names in set(SET.findall(text)) for name in names}
    untested = [
        name
        for name, setting in SETTINGS.items()
        if name not in found and (setting.group is None or setting.field not in found)
    ]
    assert untested == [], "test each with another value than its default, or make it a constant"
