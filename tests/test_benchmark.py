"""The rows that a benchmark makes of scores."""

import numpy as np
import pytest

import fiood_core as fiood
from fiood_core import Dataset, Info, OODSet, SimpleBenchmark, View
from fiood_core.benchmark import Pool


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
