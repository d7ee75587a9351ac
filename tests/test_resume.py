"""A run that is killed, at whatever moment, and started again ends like one that was not; so do two runs at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

PROGRAM = Path(__file__).parent / "interrupted.py"
TIMES = 20


def interrupted(folder, what, count):
    """What the program finds; see there."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), what, str(count)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["extract", "statistics", "score", "write", "rename", "renamed"])
def test_a_killed_run_resumes_to_the_same_bytes(kind, tmp_path):
    found = interrupted(tmp_path, kind, TIMES)
    assert len(found["moments"]) == found["killed"] == TIMES
    assert found["differing"] == {}
    assert {"results.jsonl", "results.parquet", "suite.yaml"} <= set(found["files"])
    assert sum(name.endswith(".parquet") for name in found["files"]) == 4


def test_two_runs_at_once_on_one_store_end_like_one(tmp_path):
    found = interrupted(tmp_path, "pairs", 6)
    assert found["differing"] == {}
