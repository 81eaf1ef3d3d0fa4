"""franz-go's kversion, on which kminion and others rely, takes the broker for a recent Kafka."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from stele.broker_process import run_broker

from tests.conformance.clients import DRIVERS, Missing, install_by_script

GUESSER = "kversion"
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def guesser() -> str:
    try:
        install_by_script(GUESSER)()
    except Missing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    return str(DRIVERS.parents[2] / ".conformance" / GUESSER / "driver")


@pytest.mark.long
def test_kversion_guesses_version_3_or_later(guesser: str) -> None:
    with run_broker() as broker:
        done = subprocess.run(
            [guesser, broker.kafka_bootstrap],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    # "v4.1", "at least v3.9", "between v0.9.0 and v0.10.0".
    guess = done.stdout.strip()
    first = re.search(r"v(\d+)\.\d+", guess)
    assert first is not None, guess
    assert not guess.startswith(("between", "not even")), guess
    assert int(first[1]) >= 3, guess
