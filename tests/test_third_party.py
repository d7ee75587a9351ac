"""A detector written from the documentation alone, in an environment of its own: built wheels, no source tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "authors" / "detector.md"
SUITE = [
    ROOT / "plugins" / place
    for place in ("detectors/msp", "backbones/digits-cnn", "datasets/digits", "benchmarks/digits")
]
"""What the run needs beside the core and the new detector."""

pytestmark = pytest.mark.slow


def written_on_the_page(title: str) -> str:
    """The block of a title, word for word."""
    text = PAGE.read_text(encoding="utf-8")
    return re.search(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, flags=re.MULTILINE | re.DOTALL)[1]


@pytest.fixture(scope="module")
def environment(core_wheel, third_party, tmp_path_factory) -> Path:
    """A virtual environment with the core's wheel and the plugins that a run of the digits needs."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "third-party.pth").write_text(str(third_party))
    install(home, core_wheel, *SUITE)
    return home


def install(environment: Path, *packages: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "-q"]
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *options, *map(str, packages)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def call(environment: Path, place: Path, *command: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("FIOOD", "PYTHON"))}
    env |= {"FIOOD_HOME": str(place / "home"), "OMP_NUM_THREADS": "1"}
    program = environment / "bin" / command[0]
    done = subprocess.run([program, *command[1:]], cwd=place, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_detector_written_from_the_documentation_is_found_checked_and_run(environment, tmp_path):
    distribution = tmp_path / "nearest-mean"
    distribution.mkdir()
    for file in ("fiood_detector_nearest_mean.py", "pyproject.toml"):
        (distribution / file).write_text(written_on_the_page(file), encoding="utf-8")
    install(environment, distribution)

    imported = call(environment, tmp_path, "python", "-c", "import fiood_core; print(fiood_core.__file__)")
    assert Path(imported.strip()).is_relative_to(environment)
    listed = call(environment, tmp_path, "fiood", "plugins")
    assert re.search(r"detector +nearest-mean +fiood-detector-nearest-mean +0\.1\.0", listed)
    assert " 0 failed" in call(environment, tmp_path, "fiood", "check", "nearest-mean")
    table = call(
        environment,
        tmp_path,
        *("fiood-run", "--benchmark", "digits", "--backbone", "digits-cnn"),
        *("--detector", "msp,nearest-mean", "--output", "run"),
    )
    rows = [line.split() for line in table.splitlines() if line.startswith(("msp ", "nearest-mean "))]
    assert [row[0] for row in rows] == ["msp", "nearest-mean"]
    assert all(0.8 < float(value) <= 1 for row in rows for value in row[1:-2:2])
    assert (tmp_path / "run" / "report.html").is_file()


def test_the_readme_shows_the_same_detector():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert written_on_the_page("fiood_detector_nearest_mean.py") in readme
