"""Fixtures for the tests of the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fiood_core import hookspecs, registry

Install = Callable[..., Path]


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
