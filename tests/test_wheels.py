"""Every plugin builds as a wheel, and works where that wheel, the core's and what it declares are all there is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml"))

BUILD = """
import os, sys
from flit_core.buildapi import build_wheel
for folder in sys.argv[2:]:
    os.chdir(folder)
    print(build_wheel(sys.argv[1]))
"""

ALONE = """
import contextlib, json, os, sys, traceback
third_party, core = sys.argv[1:3]
sys.path += [core, third_party]
import fiood_core.benchmark, fiood_core.vocabulary, fiood_core.testing
from fiood_core import registry
from fiood_core.errors import ParameterError

assert not registry.components()

def problems(folders):
    sys.path[:0] = folders
    registry.refresh()
    own = [c for c in registry.components() if (c.path or "").startswith(folders[0])]
    if not own:
        yield "no component of it is found"
    for component in own:
        target = registry.load(component.kind, component.name)
        needed = [p for p in (registry.parameters(target) or {}).values() if p.default is p.empty]
        if not needed:
            with contextlib.suppress(ParameterError):  # it says which of its parameters it wants
                registry.create(component.kind, component.name)
        if component.kind == "detector":
            fiood_core.testing.check_detector(target)

for line in sys.stdin:
    name, *folders = json.loads(line)
    child = os.fork()
    if not child:
        try:
            print(json.dumps([name, list(problems(folders))]), flush=True)
        except BaseException:
            print(json.dumps([name, [traceback.format_exc()]]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
"""Loads each plugin in a fork of a process that has the core, from its wheel, and third-party libraries only."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each plugin is loaded in a fork"),
]


@pytest.fixture(scope="module")
def plugin_wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("plugins")
    subprocess.run([sys.executable, "-c", BUILD, str(out), *map(str, FOLDERS)], check=True, capture_output=True)
    return sorted(out.glob("*.whl"))


def unpack(wheel: Path, into: Path) -> Path:
    """Install a wheel of pure Python into a folder: that is what unpacking does."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    return into


def metadata(folder: Path):
    (info,) = folder.glob("*.dist-info")
    return Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))


def test_each_plugin_works_alone_from_its_wheel(core_wheel, plugin_wheels, third_party, tmp_path):
    assert len(plugin_wheels) == len(FOLDERS)
    core = unpack(core_wheel, tmp_path / "core")
    places = {metadata(place)["Name"]: place for place in (unpack(w, tmp_path / w.stem) for w in plugin_wheels)}
    requests = []
    for name, place in places.items():
        assert len(list(place.glob("*.py"))) == 1
        needed = {line.split(">")[0].strip() for line in metadata(place).get_all("Requires-Dist")} & set(places)
        requests.append(json.dumps([name, str(place), *(str(places[other]) for other in sorted(needed))]))
    command = [sys.executable, "-S", "-c", ALONE, str(third_party), str(core)]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("FIOOD", "PYTHON"))}
    env |= {"FIOOD_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, input="\n".join(requests), env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcomes = dict(map(json.loads, filter(lambda line: line.startswith("["), done.stdout.splitlines())))
    assert set(outcomes) == set(places)
    assert {name: problems for name, problems in outcomes.items() if problems} == {}


def test_the_core_alone_installs_and_answers(core_wheel, third_party, tmp_path):
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", str(core_wheel)], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    (site / "third-party.pth").write_text(str(third_party))
    for command in (["fiood", "--version"], ["fiood", "plugins"], ["fiood-run", "--help"]):
        done = subprocess.run([home / "bin" / command[0], *command[1:]], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    installed = {path.name for path in site.iterdir() if not path.name.endswith((".pth", ".dist-info"))}
    assert installed == {"fiood_core"}


def test_the_core_wheel_has_all_of_its_files(core_wheel):
    with zipfile.ZipFile(core_wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("fiood_core/")}
    tracked = subprocess.run(["git", "ls-files", "fiood_core"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    assert set(tracked.stdout.split()) - packed == set()
