"""A setting comes from the command line, otherwise from the environment, otherwise from its default."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.settings import Settings


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STELE_HTTP_PORT", "8081")
    monkeypatch.setenv("STELE_KAFKA_PORT", "9093")
    settings = Settings.model_validate({"http_port": "8082"})
    assert (settings.http_port, settings.kafka_port) == (8082, 9093)
    assert settings.binary_port == Settings.model_fields["binary_port"].default


def test_what_is_invalid_in_the_environment_counts_unless_the_command_line_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STELE_HTTP_PORT", "none")
    assert Settings.model_validate({"http_port": "8082"}).http_port == 8082
    with pytest.raises(ValidationError, match="http_port"):
        Settings.model_validate({"kafka_port": "9093"})
