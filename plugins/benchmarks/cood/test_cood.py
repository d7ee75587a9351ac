import json

import numpy as np
import pytest
from fiood_benchmark_cood import (
    COOD,
    COODDigits,
    SplitPool,
    class_names,
    class_severity,
    evaluate_levels,
    risk_coverage,
    risk_coverage_area,
    severity_levels,
    split,
)
from PIL import Image

from fiood_core import Concept, Dataset, Info, View
from fiood_core.benchmark import Pool
from fiood_core.errors import DataError, ParameterError
from fiood_core.metrics import evaluate
from fiood_core.testing import check_benchmark


class Pictures(Dataset):
    """Pictures that are named and labelled, but never looked at."""

    info = Info(title="pictures")

    def __init__(self, concepts, targets=None, wnids=None):
        self.concepts, self.targets, self.class_wnids = concepts, targets, wnids

    def view(self):
        ids = [f"{row:04d}" for row in range(len(self.concepts or self.targets))]
        concepts = [Concept("", name) if name.startswith("n0") else Concept(name) for name in self.concepts or ()]
        return View("pictures", ids, targets=self.targets, concepts=concepts or None)

    def open(self, image_id):
        return Image.new("RGB", (2, 2))

    def stamps(self, ids):
        return ["1"] * len(ids)


def benchmark(concepts, **parameters):
    return COOD(Pictures(None, [(0,), (1,)]), Pictures(concepts), **{"window": 1, "test_share": 0.5, **parameters})


def refusal(concepts, **parameters):
    (problem,) = benchmark(concepts, **parameters).ood["pool"].dataset.missing()
    return problem


def test_the_embedded_benchmark_conforms():
    check_benchmark(COODDigits)


def test_severity_is_the_mean_confidence_of_a_class():
    found = class_severity(np.array([1.0, 3.0, 5.0, 0.5]), np.array([1, 1, 0, 2]), 3)
    assert found.tolist() == [5.0, 2.0, 0.5]


def test_a_label_without_a_picture_is_refused():
    with pytest.raises(DataError, match="class 1 of 3 has no picture"):
        class_severity(np.ones(2), np.array([0, 2]), 3)


def test_levels_are_windows_at_percentiles_the_last_one_the_hardest():
    severity = np.array([0.9, 0.1, 0.5, 0.3, 0.7, 0.2])
    levels = severity_levels(severity, window=2, levels=3)
    order = [1, 5, 3, 2, 4, 0]
    assert [level.classes.tolist() for level in levels] == [order[0:2], order[2:4], order[4:6]]
    assert [level.percentile for level in levels] == [0.0, 0.5, 1.0]
    np.testing.assert_allclose([level.severity for level in levels], [0.15, 0.4, 0.8])


def test_groups_and_metrics_equal_an_independent_computation():
    random = np.random.default_rng(0)
    count, window = 40, 7
    hardness = random.permutation(count) / count
    labels = np.repeat(np.arange(count), 20)
    scores = hardness[labels] + random.normal(size=len(labels))
    inside = random.normal(size=500) + 1
    estimation = np.arange(len(labels)) % 20 < 15
    levels = severity_levels(class_severity(scores[estimation], labels[estimation], count), window)
    found = evaluate_levels(inside, scores[~estimation], labels[~estimation], levels)

    means = {
        c: np.mean([s for s, y, e in zip(scores, labels, estimation, strict=True) if y == c and e])
        for c in range(count)
    }
    ranked = sorted(means, key=means.get)
    windows = [ranked[start : start + window] for start in range(count - window + 1)]
    for level, metrics in zip(levels, found, strict=True):
        expected = windows[min(int(level.number / 10 * len(windows)), len(windows) - 1)]
        assert level.classes.tolist() == expected
        outside = scores[~estimation & np.isin(labels, expected)]
        pairs = (inside[:, None] > outside).mean() + (inside[:, None] == outside).mean() / 2
        assert metrics.auroc == pytest.approx(pairs, abs=1e-12)
        assert metrics.fpr95 == (outside >= np.percentile(inside, 5)).mean()


def test_equal_confidences_count_half_without_a_draw():
    levels = severity_levels(np.zeros(3), window=1, levels=2)
    (first, _) = evaluate_levels(np.zeros(5), np.zeros(6), np.repeat([0, 1, 2], 2), levels)
    assert first.auroc == 0.5


def test_diverse_levels_are_far_apart_in_severity():
    severity = np.array([0.0, 0.01, 0.02, 0.5, 1.0])
    levels = severity_levels(severity, window=1, levels=3, choice="diversity")
    assert [level.classes.tolist() for level in levels] == [[0], [3], [4]]


def test_a_pool_smaller_than_the_window_is_refused():
    with pytest.raises(DataError, match="has 2 classes, fewer than the window of 3"):
        severity_levels(np.zeros(2), window=3)


@pytest.mark.parametrize("wrong", [{"levels": 1}, {"window": 0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError, match="at least two levels"):
        severity_levels(np.zeros(9), **{"window": 2, **wrong})


def test_the_split_is_by_class_and_does_not_depend_on_the_order_of_the_list():
    names, ids = ["a"] * 8 + ["b"] * 4, [f"{i}" for i in range(12)]
    test = split(names, ids, 0.25, seed=0)
    assert [test[:8].sum(), test[8:].sum()] == [2, 1]
    back = split(names[::-1], ids[::-1], 0.25, seed=0)[::-1]
    assert (back == test).all()
    assert any((split(names, ids, 0.25, seed=seed) != test).any() for seed in range(1, 5))


def test_a_class_with_one_picture_is_refused_by_name():
    assert "'lonely' has 1 pictures" in refusal(["many", "many", "lonely"])


def test_a_listed_class_without_pictures_is_refused_by_name(tmp_path):
    listed = tmp_path / "classes.txt"
    listed.write_text("there\nabsent\n")
    assert "'absent' of the class list has no picture" in refusal(["there"] * 4, classes=listed)


def test_duplicate_classes_are_refused_by_name(tmp_path):
    listed = tmp_path / "classes.txt"
    listed.write_text("there\nthere\n")
    assert "names 'there' twice" in refusal(["there"] * 4, classes=listed)
    assert "the class 'Cat' twice" in refusal(["Cat", "Cat", "cat", "cat"]) or "'cat' twice" in refusal(
        ["Cat", "Cat", "cat", "cat"]
    )


def test_a_gap_in_numbered_classes_is_refused():
    assert "numbered 0 to 3, but 2 has no picture" in refusal(["0", "0", "1", "1", "3", "3"])


def test_a_pool_with_an_id_class_is_refused_by_name():
    inside = Pictures(None, [(0,), (1,)], wnids=("n01440764", "n01443537"))
    pool = Pictures(["n01443537"] * 4 + ["n02000000"] * 4)
    (problem,) = COOD(inside, pool, window=1).ood["pool"].dataset.missing()
    assert "'n01443537' is a class of the ID set" in problem


def test_rows_carry_the_papers_numbers():
    concepts = [name for name in ("easy", "middle", "hard") for _ in range(4)]
    cood = benchmark(concepts, levels=3)
    view = cood.ood["pool"].dataset.view()
    scores = np.repeat([-1.0, 0.0, 1.0], 4)
    inside = Pool(np.array([2.0, 0.5, 0.25, -0.5]), cood.id_test.view(), np.array([True, True, False, True]))
    rows = list(cood.rows(inside, {"pool": Pool(scores, view)}))
    assert [row.subset for row in rows] == ["level-0", "level-1", "level-2"]
    assert [row.details["classes"] for row in rows] == [["easy"], ["middle"], ["hard"]]
    assert [row.details["ood_mean_confidence"] for row in rows] == [-1.0, 0.0, 1.0]
    assert [row.metrics.auroc for row in rows] == [1.0, 0.75, 0.25]
    assert rows[0].details["id_top1"] == 0.75
    assert rows[0].details["id_auroc"] == pytest.approx(2 / 3)
    json.dumps([row.details for row in rows], allow_nan=False)


def test_a_level_can_be_evaluated_by_hand_from_its_classes():
    cood = COODDigits()
    view = cood.ood["pool"].dataset.view()
    random = np.random.default_rng(0)
    scores = random.normal(size=len(view))
    inside = random.normal(size=len(cood.id_test.view())) + 1
    hardest = list(cood.rows(Pool(inside, cood.id_test.view()), {"pool": Pool(scores, view)}))[-1]
    test = set(view.subsets["test"])
    rows = [r for r, c in enumerate(view.concepts) if c.name in hardest.details["classes"] and r in test]
    assert evaluate(inside, scores[rows]) == hardest.metrics


def test_risk_rises_with_coverage_as_errors_come():
    scores, correct = np.array([4.0, 3.0, 2.0, 1.0]), np.array([True, True, False, False])
    coverage, risk = risk_coverage(scores, correct)
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    np.testing.assert_allclose(risk, [0, 0, 1 / 3, 1 / 2])
    assert risk_coverage_area(scores, correct) == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_tied_confidences_share_their_errors():
    first, second = (risk_coverage_area(np.zeros(4), np.roll([True, True, True, False], k)) for k in (0, 2))
    assert first == second == pytest.approx(0.25)


def test_a_split_pool_keeps_the_chosen_classes_only():
    pool = SplitPool(Pictures(["a"] * 4 + ["b"] * 4), classes=["b"], test_share=0.25)
    view = pool.view()
    assert [concept.name for concept in view.concepts] == ["b"] * 4
    assert len(view.subsets["test"]) == 1


def test_classes_are_concepts_then_folders_then_class_indices():
    view = View("v", ["x/1", "y/2", "3"], targets=[(7,), (), (4,)], concepts=[Concept("cat"), None, None])
    assert class_names(view) == ["cat", "y", "4"]
    with pytest.raises(DataError, match="'3' of 'v' has no class"):
        class_names(View("v", ["3"], targets=[()]))


def test_an_id_set_without_class_indices_excludes_the_classes_that_it_names():
    pool = Pictures(["fox"] * 4 + ["train/Cat"] * 4)
    (problem,) = COOD(Pictures(["cat", "dog"]), pool, window=1).ood["pool"].dataset.missing()
    assert "'train/Cat' is a class of the ID set (1 such" in problem
