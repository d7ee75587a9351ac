"""COOD from pictures to report: any classifier, a vision-language model, any detector, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from fiood_core import results
from fiood_core.cli._run import command

OWN = Path(__file__).parent / "tiny.py"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call fiood-run in an empty folder with a store of its own; the exit status and the results."""
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fiood_core.tasks.SHOW_PROGRESS", False)

    def call(*arguments):
        done = CliRunner().invoke(command, [*map(str, arguments), "--output", "out"])
        return done, results.load(Path("out"))

    return call


def pictures(folder, classes):
    for name, greys in classes.items():
        (folder / name).mkdir(parents=True)
        for number, grey in enumerate(greys):
            Image.new("L", (8, 8), grey).save(folder / name / f"{number}.png")
    return f"folder:{folder}"


@pytest.mark.slow
def test_a_vision_language_model_and_someone_elses_detector_have_levels(call):
    done, found = call(
        *("--backbone", "digits-cnn,digits-clip", "--benchmark", "cood-digits", "--detector"),
        f"msp,mcm,{OWN}:Largest",
    )
    assert done.exit_code == 0, done.output
    curves = {}
    for row in found.rows:
        curves.setdefault((row["backbone"], row["detector"]), []).append(row["auroc"])
    assert len(curves) == 6
    for key, aurocs in curves.items():
        assert len(aurocs) == 11
        assert aurocs[0] > aurocs[10] + 0.01, key
    details = json.loads(found.rows[0]["details"])
    assert len(details["id_risk"]) == 20
    assert details["id_risk"][-1] == pytest.approx(1 - details["id_top1"])
    assert "Graded levels" in Path("out/report.html").read_text(encoding="utf-8")


def test_a_pool_smaller_than_the_window_is_a_failed_cell_that_says_so(call, tmp_path):
    inside = pictures(tmp_path / "id", {"a": [0, 9], "b": [200, 210]})
    pool = pictures(tmp_path / "pool", {"c": [30] * 4, "d": [60] * 4})
    done, found = call(
        *("--backbone", f"{OWN}:TinyNet", "--detector", f"{OWN}:Largest"),
        *("--benchmark", f"cood(id_test='{inside}', pool='{pool}', window=3)"),
    )
    assert done.exit_code == 1
    (cell,) = found.failed
    assert "the pool has 2 classes, fewer than the window of 3" in cell["reason"]


@pytest.mark.parametrize(
    ("classes", "reason"),
    [
        ({"c": [30] * 4, "lonely": [60]}, "class 'lonely' has 1 pictures"),
        ({"0": [30] * 4, "2": [60] * 4}, "numbered 0 to 2, but 1 has no picture"),
        ({"Cat": [30] * 4, "cat": [60] * 4}, "twice, written differently"),
        ({"c": [30] * 4, "b": [60] * 4}, "'b' is a class of the ID set"),
    ],
)
def test_a_pool_that_cannot_be_graded_stops_the_run_with_the_class_named(call, tmp_path, classes, reason):
    inside = pictures(tmp_path / "id", {"a": [0, 9], "b": [200, 210]})
    pool = pictures(tmp_path / "pool", classes)
    done = CliRunner().invoke(
        command,
        [
            *("--backbone", f"{OWN}:TinyNet", "--detector", f"{OWN}:Largest", "--output", "out"),
            *("--benchmark", f"cood(id_test='{inside}', pool='{pool}', window=1)"),
        ],
    )
    assert done.exit_code != 0
    assert reason in done.output + str(done.exception)
