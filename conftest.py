"""Fixtures for every test of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The developers' data (pictures, lists, golden values); a test that needs it is skipped where it is absent."""
    place = Path(os.environ.get("FIOOD_SHARED") or Path(__file__).parent.parent / "shared")
    if not (place / "golden").is_dir():
        pytest.skip(f"developers' data not found at {place}; set FIOOD_SHARED to run this test")
    return place


@pytest.fixture(scope="session")
def lists(shared: Path) -> Path:
    """The developers' copies of the lists that define the papers' datasets."""
    return shared / "lists"
