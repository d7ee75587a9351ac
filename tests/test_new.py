"""``fiood new`` writes plugins that install, pass the conformance kit and their own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fiood_core.cli.new import KINDS, command
from fiood_core.errors import PluginError
from fiood_core.scaffold import write_plugin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, Path]:
    """A plugin of each kind, with the metadata that installing it would write."""
    folders = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        write_plugin(kind, "brand-new", folder)
        folders[kind] = folder
    return folders


def install(folder: Path, site: Path) -> dict[str, str]:
    """Build the plugin's wheel, unpack it into ``site``, and give the environment in which it is installed."""
    build = "import sys; from flit_core.buildapi import build_wheel; print(build_wheel(sys.argv[1]))"
    wheel = subprocess.run(
        [sys.executable, "-c", build, site], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run([sys.executable, "-m", "zipfile", "-e", site / wheel, site], check=True)
    return {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_written_plugin_is_found_checked_and_tested(kind, written, tmp_path):
    env = install(written[kind], tmp_path)
    check = [sys.executable, "-c", "from fiood_core.cli import main; main()", "check", "brand-new"]
    found = subprocess.run(check, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert f"{kind} brand-new" in found.stdout
    assert " 0 failed" in found.stdout
    own = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        env=env,
        cwd=written[kind],
        capture_output=True,
        text=True,
    )
    assert own.returncode == 0, own.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_plugin_is_well_formed(kind, written):
    project = tomllib.loads((written[kind] / "pyproject.toml").read_text())["project"]
    assert project["name"] == f"fiood-{kind}-brand-new"
    (group,) = project["entry-points"].values()
    assert group == {"brand-new": f"fiood_{kind}_brand_new:BrandNew"}
    ruff = [sys.executable, "-m", "ruff", "check", "--config", ROOT / "pyproject.toml", written[kind]]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_plus_signs_are_spelt_out_in_the_distribution(tmp_path):
    write_plugin("detector", "sharper++", tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["name"] == "fiood-detector-sharper-pp"
    assert project["entry-points"]["fiood.detectors"] == {"sharper++": "fiood_detector_sharper_pp:SharperPp"}


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PluginError, match="not empty"):
        write_plugin("detector", "brand-new", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["Capital", "under_score", "../climb", "-dash", "a--b", "", "a/b", "1st"])
def test_a_name_that_no_registry_could_hold_is_refused(name, tmp_path):
    with pytest.raises(PluginError, match="lower-case"):
        write_plugin("detector", name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_taken_is_refused(tmp_path):
    with pytest.raises(PluginError, match="fiood-detector-msp"):
        write_plugin("detector", "msp", tmp_path / "out")


def test_the_command_says_what_it_wrote_and_what_comes_next(tmp_path):
    result = CliRunner().invoke(command, ["detector", "brand-new", "--directory", str(tmp_path / "plugin")])
    assert result.exit_code == 0, result.output
    assert "pyproject.toml" in result.output
    assert "fiood check brand-new" in result.output
