"""Running a plan: what fails is written down and the rest goes on; what is done is not done again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import fiood_core as fiood
from fiood_core import results, tasks
from fiood_core import suite as suites
from fiood_core.errors import StoreError, SuiteError
from fiood_core.plan import resolve
from fiood_core.runner import run

TINY = Path(__file__).parent / "tiny.py"


def suite(detectors=("Largest",), benchmark="TinyBenchmark", backbones=("TinyNet",), **more):
    """A suite of tiny components."""
    data = {
        "name": "tiny",
        "benchmark": benchmark if isinstance(benchmark, dict) else f"{TINY}:{benchmark}",
        "backbones": [f"{TINY}:{name}" for name in backbones],
        "detectors": [name if name.islower() else f"{TINY}:{name}" for name in detectors],
        "settings": {"device": "cpu", "batch_size": 8},
        **more,
    }
    return suites.read(json.dumps(data))


@pytest.fixture
def go(tmp_path):
    """Run a suite in a directory and a store of the test's own."""

    def go(asked, output="out", **more):
        plan = resolve(asked)
        plan.require_sound()
        return run(plan, tmp_path / output, store=tmp_path / "store", **more)

    return go


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr("fiood_core.tasks.SHOW_PROGRESS", False)


def statuses(found):
    return {(row["column"].removeprefix("./tiny.py:"), row["ood"]): row["status"] for row in found.failed}


def reason(found, column, ood="near"):
    (row,) = [r for r in found.failed if r["column"] == f"./tiny.py:{column}" and r["ood"] == ood]
    return row["reason"]


def content(directory):
    """Every result file but the record, by name."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("run.json", "report.html") and ".fiood" not in path.parts
    }


def test_a_run_gives_the_metrics_of_its_own_scores(go):
    found = go(suite(["Largest", "Centre", "msp"]))
    assert found.failed == []
    row = next(
        r for r in found.rows if r["column"] == "./tiny.py:Centre" and r["ood"] == "near" and r["subset"] == "all"
    )
    inside, outside = found.scores(row)
    expected = fiood.evaluate(inside.values, outside.values)
    assert (row["auroc"], row["fpr95"], row["n_id"], row["n_ood"]) == (expected.auroc, expected.fpr95, 30, 24)
    assert outside.ids[0] == "halved/000"


def test_the_scores_are_those_of_score_all_on_the_same_features(go, tmp_path):
    from fiood_core.extract import ExtractSettings, extract
    from fiood_core.store import FeatureStore

    found = go(suite(["Centre"]))
    store, settings = FeatureStore(tmp_path / "store"), ExtractSettings(device="cpu", batch_size=8, progress=False)
    backbone = fiood.backbone(f"{TINY}:TinyNet")
    read = lambda **of: extract(backbone, fiood.dataset(f"{TINY}:Pictures", **of), store, settings).features  # noqa: E731
    table = fiood.score_all(
        {"c": f"{TINY}:Centre"}, read(name="train", count=60), {"far": read(name="far", count=20, labelled=False)}
    )
    row = next(r for r in found.rows if r["ood"] == "far")
    np.testing.assert_array_equal(found.scores(row)[1].values, table["c"]["far"])


def test_rows_have_subsets_keys_and_one_schema(go):
    found = go(suite(["Largest"]))
    assert [(r["ood"], r["subset"], r["group"]) for r in found.rows] == [
        ("near", "all", "near"),
        ("near", "first half", "near"),
        ("far", "all", "far"),
    ]
    assert len({row["key"] for row in found.rows}) == 3
    assert all(results.row_key(row) == row["key"] and list(row) == results.SCHEMA.names for row in found.rows)
    table = pq.read_table(found.directory / "results.parquet")
    assert table.schema.equals(results.SCHEMA)
    assert table.to_pylist() == found.rows


def test_a_detector_that_learns_nothing_has_the_same_key_with_and_without_training_data(go):
    with_train = go(suite(["Largest"]), "a").rows
    without = go(suite(["Largest"], benchmark="TinyBenchmark(train=0)"), "b").rows
    assert [row["key"] for row in with_train] == [row["key"] for row in without]


def test_the_key_changes_with_parameters_but_not_with_the_directory(go):
    first = go(suite(["Centre"]), "a").rows[0]["key"]
    assert go(suite(["Centre"]), "b").rows[0]["key"] == first
    assert go(suite(["Centre(power=2)"]), "c").rows[0]["key"] != first


def test_failing_cells_are_written_down_and_the_others_go_on(go):
    found = go(
        suite(["Largest", "Raises", "Raises(rows=20)", "Short", "NotANumber", "NeedsBrokenColumn", "Exits", "Dark"])
    )
    assert {row["column"] for row in found.rows} >= {"./tiny.py:Largest", "./tiny.py:Dark"}
    assert statuses(found) == {
        **{(name, ood): "failed" for name in ("Raises", "Short", "NotANumber") for ood in ("near", "far")},
        **{(name, ood): "failed" for name in ("NeedsBrokenColumn", "Exits") for ood in ("near", "far")},
        ("Raises(rows=20)", "far"): "failed",
    }
    assert "the plugin broke" in reason(found, "Raises")
    assert "NaN" in reason(found, "NotANumber")
    assert "id/000" in reason(found, "NotANumber")
    assert "shape" in reason(found, "Short")
    assert "no gradient here" in reason(found, "NeedsBrokenColumn")
    assert all(row["auroc"] is None for row in found.failed)


def test_a_statistic_with_too_little_under_it_is_refused_with_its_reason(go):
    found = go(suite(["NeedsMany", "Centre"]))
    assert statuses(found) == {("NeedsMany", "near"): "refused", ("NeedsMany", "far"): "refused"}
    assert "power needs 1000 training rows" in reason(found, "NeedsMany")


def test_a_column_that_a_model_cannot_give_is_refused_with_its_reason(go):
    found = go(suite(["mc-dropout", "Largest"]))
    assert statuses(found) == {("mc-dropout", "near"): "refused", ("mc-dropout", "far"): "refused"}
    assert all("no dropout layer" in row["reason"] for row in found.failed)


def test_without_a_training_set_detectors_that_learn_are_refused(go):
    found = go(suite(["Centre", "Largest"], benchmark="TinyBenchmark(train=0)"))
    assert statuses(found) == {("Centre", "near"): "refused", ("Centre", "far"): "refused"}
    assert "give a training set" in reason(found, "Centre")


def test_a_missing_set_fails_its_own_cells_only(go):
    found = go(suite(["Largest", "Centre"], benchmark="TinyBenchmark(far='gone')"))
    assert statuses(found) == {("Largest", "far"): "failed", ("Centre", "far"): "failed"}
    assert reason(found, "Largest", "far") == "the pictures of 'far' are missing; draw them"
    assert {row["ood"] for row in found.rows} == {"near"}


def test_a_backbone_that_fails_its_gate_fails_alone(go):
    found = go(suite(["Largest"], backbones=["TinyNet(shift=1)", "TinyNet(broken=true)", "TinyNet"]))
    by_backbone = {row["backbone"]: row["reason"] for row in found.failed}
    assert set(by_backbone) == {"./tiny.py:TinyNet(shift=1)", "./tiny.py:TinyNet(broken='true')"}
    assert "label" in by_backbone["./tiny.py:TinyNet(shift=1)"]
    assert "the weights are gone" in by_backbone["./tiny.py:TinyNet(broken='true')"]
    assert {row["backbone"] for row in found.rows} == {"./tiny.py:TinyNet"}


def test_after_a_failed_gate_no_other_set_goes_through_the_backbone(go, tmp_path):
    found = go(suite(["Centre"], backbones=["TinyNet(shift=1)"]))
    assert {row["reason"] for row in found.failed} == {reason(found, "Centre")}
    assert "label" in reason(found, "Centre")
    assert len(list((tmp_path / "store").rglob("features.json"))) == 1
    go(suite(["Centre"], backbones=["TinyNet"]))
    assert len(list((tmp_path / "store").rglob("features.json"))) == 1 + 4


def test_a_suite_can_expect_another_accuracy(go):
    assert go(suite(["Largest"], expect_top1=0.5)).failed[0]["reason"]
    found = go(suite(["Largest"]))
    assert found.failed == []
    assert found.rows[0]["top1"] == 1.0


def test_a_second_run_loads_nothing_and_ends_the_same(go, monkeypatch):
    asked = suite(["Largest", "Centre", "Dark"])
    before = content(go(asked).directory)
    monkeypatch.setattr("fiood_core.tasks.execute", lambda task: pytest.fail(f"did {task['shard']} again"))
    monkeypatch.setattr("fiood_core.executors.execute", lambda task: pytest.fail(f"did {task['shard']} again"))
    assert content(go(asked).directory) == before


def test_a_detector_that_is_added_or_taken_away_leaves_the_files_of_a_clean_run(go):
    go(suite(["Largest", "Centre"]), "grown")
    assert content(go(suite(["Largest", "Centre", "Dark"]), "grown").directory) == content(
        go(suite(["Largest", "Centre", "Dark"]), "clean").directory
    )
    assert content(go(suite(["Centre"]), "grown").directory) == content(go(suite(["Centre"]), "clean2").directory)


def test_damaged_or_foreign_scores_are_not_believed(go):
    found = go(suite(["Largest"]))
    before = content(found.directory)
    path = found.directory / found.rows[0]["scores"]
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)
    assert content(go(suite(["Largest"])).directory) == before


def test_a_changed_picture_is_scored_again(go, tmp_path):
    from PIL import Image

    for name, grey in (("id", 200), ("ood", 90)):
        (tmp_path / name).mkdir()
        for number in range(6):
            Image.new("L", (8, 8), grey + number).save(tmp_path / name / f"{number}.png")
    asked = suite(["Largest"], benchmark={"id": f"folder:{tmp_path}/id", "ood": {"o": f"folder:{tmp_path}/ood"}})
    assert go(asked).rows[0]["auroc"] == 1.0
    for number in range(6):
        Image.new("L", (8, 8), 250).save(tmp_path / "ood" / f"{number}.png")
    assert go(asked).rows[0]["auroc"] == 0.0


def test_skipped_pictures_are_counted_and_block_publication(go, tmp_path):
    from PIL import Image

    for name in ("id", "ood"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("L", (8, 8), 60 * number).save(tmp_path / name / f"{number}.png")
    (tmp_path / "ood" / "2.png").write_bytes(b"no picture")
    benchmark = {"id": f"folder:{tmp_path}/id", "ood": {"o": f"folder:{tmp_path}/ood"}}
    failed = go(suite(["Largest"], benchmark=benchmark), "strict").failed
    assert "2.png" in failed[0]["reason"]
    settings = {"device": "cpu", "batch_size": 8, "on_bad_image": "skip-and-count"}
    for _ in range(2):  # the second time from what is kept
        (row,) = go(suite(["Largest"], benchmark=benchmark, settings=settings)).rows
        assert (row["n_ood"], row["skipped"], row["publishable"], row["canonical"]) == (3, 1, False, True)


def test_a_full_disk_stops_the_run_and_keeps_the_table(go, monkeypatch):
    score_set = tasks._score_set

    def full(scoring, planned):
        if planned.name == "far":
            raise StoreError("disk full at here")
        score_set(scoring, planned)

    monkeypatch.setattr(tasks, "_score_set", full)
    with pytest.raises(StoreError, match="disk full"):
        go(suite(["Largest"]))
    monkeypatch.undo()


def test_an_unknown_executor_is_refused(go):
    asked = suites.with_settings(suite(), executor="nonsense")
    with pytest.raises(SuiteError, match="offered are local"):
        go(asked)


def test_tasks_are_plain_data_and_can_be_done_by_another_process(go, tmp_path, monkeypatch):
    done = []

    class Elsewhere:
        def run(self, todo):
            for task in todo:
                copied = json.loads(json.dumps(task))
                done.append((copied["kind"], copied["shard"].rpartition("/")[2]))
                tasks.forget()
                tasks.execute(copied)
                yield task

    monkeypatch.setattr("fiood_core.executors.create", lambda name: Elsewhere())
    assert go(suite(["Centre"])).failed == []
    assert done == [("extract", s) for s in ("id", "train", "near", "far")] + [("score", "scores")]


def test_events_are_told_through_the_hook(go):
    from fiood_core import hookspecs

    class Listener:
        heard = []

        @hookspecs.hookimpl
        def fiood_run_event(self, event):
            self.heard.append(event.name)

    manager = hookspecs.manager()
    listener = Listener()
    manager.register(listener)
    try:
        go(suite(["Largest"]))
    finally:
        manager.unregister(listener)
    assert listener.heard[0] == "run-started"
    assert listener.heard[-1] == "run-finished"
    assert listener.heard.count("task-finished") == 4
    assert listener.heard.count("cell-finished") == 3


def test_results_can_be_loaded_and_damage_is_named(go):
    found = go(suite(["Largest", "Raises"]))
    again = results.load(found.directory)
    assert (again.rows, again.failed) == (found.rows, found.failed)
    lines = (found.directory / "results.jsonl").read_text()
    (found.directory / "results.jsonl").write_text(lines.replace('"auroc":null', '"auroc":NaN'))
    with pytest.raises(fiood.FioodError, match="damaged"):
        results.load(found.directory)
    with pytest.raises(fiood.FioodError, match=r"results\.jsonl is missing"):
        results.load(found.directory / "scores")


def test_labels_become_file_names_one_to_one():
    labels = ["knn(k=10)", "./a.py:B", "a/b", "a b", "a_b", "..", ".", "x" * 200, "x" * 201, "mahalanobis++", "Ü"]
    names = [results.file_name(label) for label in labels]
    assert len(set(names)) == len(names)
    assert all("/" not in name and not name.startswith(".") and len(name) < 130 for name in names)


def test_training_pictures_among_the_test_pictures_are_told_and_block_publication(go):
    from fiood_core.summary import summary

    pictures = {"name": f"{TINY}:Pictures"}
    benchmark = {
        "id": pictures,
        "train": pictures,
        "ood": {"o": {"name": f"{TINY}:Pictures", "labelled": False, "count": 9}},
    }
    found = go(suite(["Largest", "Centre"], benchmark=benchmark))
    assert {row["detector"].rpartition(":")[2]: row["publishable"] for row in found.rows} == {
        "Largest": True,
        "Centre": False,
    }
    assert "30 ID test pictures are in the training set too" in summary(found)
