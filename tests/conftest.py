"""Fixtures for the tests of the whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fiood_core import hookspecs, registry

ROOT = Path(__file__).parent.parent
Install = Callable[..., Path]

BUILD_CORE = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="session")
def core_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core's wheel, built from a copy of its sources."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "fiood_core", source / "fiood_core", ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-c", BUILD_CORE, str(out)], cwd=source, check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to all that is installed here, fiood's distributions aside."""
    into = tmp_path_factory.mktemp("third-party")
    for site in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(site).iterdir():
            if not path.name.startswith(("fiood", "__editable__", "__pycache__")) and path.suffix != ".pth":
                (into / path.name).symlink_to(path)
    return into


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Install a plugin: a distribution's metadata and its module, in a folder that goes on ``sys.path``."""

    def install(
        distribution: str,
        entries: Mapping[str, str],
        source: str = "",
        *,
        group: str = "fiood.detectors",
        version: str = "1.0",
        place: str = "site",
    ) -> Path:
        folder = tmp_path / place
        stem = distribution.replace("-", "_")
        info = folder / f"{stem}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        (folder / f"{stem}.py").write_text(source)
        return folder

    return install


@pytest.fixture
def fresh_registry():
    """Let a test change what is installed, and forget it afterwards."""
    registry.refresh()
    hookspecs.manager.cache_clear()
    yield
    registry.refresh()
    hookspecs.manager.cache_clear()
