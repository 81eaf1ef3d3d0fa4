"""The wheel and the sdist that users install, each in an environment that has nothing else.

A file that is missing from one of them, or an import that only works in the
checkout, cannot hide here. ``make release`` names the directory of those that it has built in
``STELE_TEST_DISTRIBUTIONS``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
# Neither the checkout nor this environment may be seen from the new one.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "STELE_", "VIRTUAL_ENV", "COV_"))}

WRITE_AND_READ = """
import sys
import httpx
import stele

binary_url, http_url = sys.argv[1:]
with stele.Client(binary_url) as client:
    receipt = client.produce("orders", b"first", key="k", headers={"h": "1"})
    assert (receipt.partition, receipt.offset, receipt.durability.label) == (0, 0, "synced"), receipt
with stele.Client(http_url) as client:
    (record,) = client.fetch("orders").records
assert (record.key, record.value, record.headers) == (b"k", b"first", (("h", b"1"),)), record
accept = {"accept": "application/vnd.apache.arrow.stream"}
answer = httpx.get(f"{http_url}/v1/topics/orders/partitions/0/records", headers=accept)
assert answer.status_code == 406 and "stele-broker[arrow]" in answer.text, answer.text
print("read", record.offset, "with", stele.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=CLEAN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel that is built from it."""
    if released := os.environ.get("STELE_TEST_DISTRIBUTIONS"):
        out = Path(released)
    else:
        out = tmp_path_factory.mktemp("distributions")
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(
    request: pytest.FixtureRequest, distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The ``bin`` of an environment with a distribution and its dependencies."""
    home = tmp_path_factory.mktemp("installed")
    # Neither pip in it nor compiled modules: both take seconds, and are the same for every package.
    venv.create(home / "venv", with_pip=False)
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    try:
        run(*pip, "install", "--quiet", "--no-compile", distributions[request.param], cwd=home)
    except AssertionError as error:
        if os.environ.get("CI") or not re.search(r"connection|Temporary failure|resolve", str(error)):
            raise
        pytest.skip("no package index can be reached: what was built is not installed")
    return python.parent


def test_the_wheel_has_the_broker_as_stele_server_and_nothing_foreign_at_the_top(
    distributions: dict[str, Path],
) -> None:
    names = zipfile.ZipFile(distributions["wheel"]).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "stele",
        "pyspark_stele",
    }
    modules = {path.relative_to(ROOT / "app").as_posix() for path in (ROOT / "app").rglob("*.py")}
    assert {f"stele/server/{module}" for module in modules} <= set(names)
    console = {path.relative_to(ROOT / "app").as_posix() for path in (ROOT / "app/api/console").rglob("*.*")}
    assert {f"stele/server/{file}" for file in console if "__pycache__" not in file} <= set(names)
    assert "stele/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_an_empty_environment_gets_stele_and_no_package_called_app(installed: Path, tmp_path: Path) -> None:
    look = "import importlib.util as u; print([n for n in ('app', 'clients', 'load') if u.find_spec(n)])"
    assert run(installed / "python", "-c", look, cwd=tmp_path).strip() == "[]"
    assert "serve" in run(installed / "stele", "--help", cwd=tmp_path)


def test_what_is_installed_reports_the_version_that_was_built(
    installed: Path, distributions: dict[str, Path], tmp_path: Path
) -> None:
    version = distributions["wheel"].name.split("-")[1]
    assert run(installed / "stele", "--version", cwd=tmp_path).strip() == f"stele, version {version}"


def test_the_installed_broker_starts_and_the_installed_client_writes_and_reads(
    installed: Path, tmp_path: Path
) -> None:
    command = [installed / "stele", "serve", "--data-dir", tmp_path / "data", "--http-port", "0"]
    broker = subprocess.Popen(
        [*map(str, command), "--binary-port", "0", "--kafka-port", "0", "--registry-port", "0"],
        cwd=tmp_path,
        env=CLEAN,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout is not None
        with broker.stdout as lines:
            ready = next(
                (m for line in lines if (m := re.match(r"stele ready http=(\S+) binary=(\S+)", line))), None
            )
            assert ready, "the broker ended before it was ready"
            http, binary = ready[1], ready[2]
            said = run(
                installed / "python",
                "-c",
                WRITE_AND_READ,
                f"stele://{binary}",
                f"http://{http}",
                cwd=tmp_path,
            )
            assert said.startswith("read 0 with ")
            assert str(installed.parent) in said
            with urllib.request.urlopen(f"http://{http}/") as page:
                asset = re.search(r'href="(/console/static/\w+/console.css)"', page.read().decode())
            assert asset
            with urllib.request.urlopen(f"http://{http}{asset[1]}") as style:
                assert style.status == 200
            broker.terminate()
            assert broker.wait() == 0
    finally:
        broker.kill()
        broker.wait()
