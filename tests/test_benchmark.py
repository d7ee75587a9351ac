"""The rows that a benchmark makes of scores."""

import numpy as np
import pytest

import fiood_core as fiood
from fiood_core import Concept, Dataset, Info, OODSet, SimpleBenchmark, View
from fiood_core.benchmark import Pool, aggregate_problem, classes
from fiood_core.errors import ParameterError
from fiood_core.metrics import evaluate_classes


class Numbered(Dataset):
    info = Info(title="Numbered")

    def __init__(self, source, n, subsets=None):
        self._view = View(source, [str(i) for i in range(n)], subsets=subsets or {})

    def view(self):
        return self._view

    def open(self, image_id):
        raise AssertionError(image_id)


@pytest.fixture
def benchmark():
    far = Numbered("far", 4, {"even": [0, 2], "odd": [1, 3]})
    return SimpleBenchmark(
        test=Numbered("id", 20), sets={"near": OODSet(Numbered("near", 5), "near"), "far": OODSet(far, "far")}
    )


def pool(dataset, scores):
    return Pool(np.array(scores, dtype=float), dataset.view())


def test_each_set_gives_a_pooled_row_and_one_for_each_subset(benchmark):
    inside = pool(benchmark.id_test, range(1, 21))
    pools = {
        "near": pool(benchmark.ood["near"].dataset, [0.5, 1.5, 2, 10, 25]),
        "far": pool(benchmark.ood["far"].dataset, [0, 30, 0, 30]),
    }
    rows = {(row.ood, row.subset): row for row in benchmark.rows(inside, pools)}
    assert list(rows) == [("near", "all"), ("far", "all"), ("far", "even"), ("far", "odd")]
    assert rows["near", "all"].metrics == fiood.evaluate(inside.scores, pools["near"].scores)
    assert rows["near", "all"].metrics.auroc == pytest.approx(0.68)
    assert rows["near", "all"].metrics.fpr95 == pytest.approx(0.6)
    assert [rows["far", s].metrics.auroc for s in ("all", "even", "odd")] == [0.5, 1.0, 0.0]
    assert rows["far", "even"].metrics.n_ood == 2
    assert {row.group for row in rows.values() if row.ood == "far"} == {"far"}


def test_a_subset_whose_pictures_were_all_skipped_gives_no_row(benchmark):
    inside = pool(benchmark.id_test, range(20))
    view = benchmark.ood["far"].dataset.view().take([0, 2])
    rows = benchmark.rows(inside, {"far": Pool(np.zeros(2), view)})
    assert [row.subset for row in rows] == ["all", "even"]


def test_training_set_is_optional(benchmark):
    assert benchmark.id_train is None
    train = Numbered("train", 3)
    assert SimpleBenchmark(test=train, train=train, sets={}).id_train is train


SCORES = [0, 30, 0, 30]


def labelled(names, **subsets):
    view = View("labelled", list("abcd"), concepts=[n if n is None else Concept(n) for n in names], subsets=subsets)
    return Pool(np.array(SCORES, dtype=float), view)


def rows_of(benchmark, pool, *aggregate):
    inside = Pool(np.arange(1.0, 21), benchmark.id_test.view())
    asked = SimpleBenchmark(test=benchmark.id_test, sets={"x": OODSet(benchmark.id_test, aggregate=aggregate)})
    return [(row.subset, row.aggregation, row.metrics) for row in asked.rows(inside, {"x": pool})]


def test_a_set_is_reported_pooled_by_class_by_the_mean_over_classes_or_by_subset(benchmark):
    pool = labelled(["cat", "dog", "cat", "cat"], half=[0, 1])
    every = rows_of(benchmark, pool, "pooled", "class-mean", "classes", "subsets")
    assert [row[:2] for row in every] == [
        ("all", "pooled"),
        ("all", "class-mean"),
        ("cat", "pooled"),
        ("dog", "pooled"),
        ("half", "pooled"),
    ]
    metrics = {row[:2]: row[2] for row in every}
    cat, dog, mean = metrics["cat", "pooled"], metrics["dog", "pooled"], metrics["all", "class-mean"]
    assert (cat.n_ood, dog.n_ood, mean.n_ood) == (3, 1, 4)
    for name in ("auroc", "fpr95", "aupr_in", "aupr_out"):
        assert getattr(mean, name) == pytest.approx((getattr(cat, name) + getattr(dog, name)) / 2)
    assert mean.auroc == pytest.approx((2 / 3 + 0) / 2)
    assert metrics["all", "pooled"].auroc == 0.5
    assert mean.auroc_stderr is None
    assert [row[:2] for row in rows_of(benchmark, pool, "class-mean")] == [("all", "class-mean")]


def test_classes_are_the_subsets_where_there_are_no_labels_and_unlabelled_pictures_are_in_none(benchmark):
    far = benchmark.ood["far"].dataset
    assert classes(far.view()) == {"even": [0, 2], "odd": [1, 3]}
    pool = labelled(["cat", None, "dog", None])
    assert classes(pool.view) == {"cat": [0], "dog": [2]}
    ((_, _, mean),) = rows_of(benchmark, pool, "class-mean")
    assert mean.n_ood == 2


def test_a_class_that_is_a_subset_too_has_one_row(benchmark):
    pool = labelled(["cat", "dog", "cat", "cat"], cat=[0, 2, 3])
    assert [row[0] for row in rows_of(benchmark, pool, "classes", "subsets")] == ["cat", "dog"]


def test_the_error_of_a_mean_over_classes_is_that_of_independent_draws():
    random = np.random.default_rng(0)
    means = np.array([0.0, 1.0, 2.0])
    drawn = [
        evaluate_classes(
            random.normal(2, 1, 60), [random.normal(m, 1, n) for m, n in zip(means, (20, 30, 40), strict=True)]
        )
        for _ in range(400)
    ]
    spread = np.std([m.auroc for m in drawn])
    assert np.mean([m.auroc_stderr for m in drawn]) == pytest.approx(spread, rel=0.12)
    one = random.normal(2, 1, 60), random.normal(0, 1, 20)
    alone, direct = evaluate_classes(one[0], [one[1]]), fiood.evaluate(*one)
    assert alone == direct


def test_what_cannot_be_aggregated_is_refused(benchmark):
    with pytest.raises(ParameterError, match="aggregate names some of pooled, class-mean"):
        OODSet(benchmark.id_test, aggregate=["macro"])
    assert aggregate_problem(benchmark.id_test.view(), ["class-mean"]).endswith("neither labels nor subsets")
    assert aggregate_problem(benchmark.id_test.view(), ["pooled", "subsets"]) is None
