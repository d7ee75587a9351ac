import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import InputError, StatisticError
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
F = RNG.standard_normal((300, 16)).astype(np.float32)


def score(rows, train=F, **parameters):
    return (
        fiood.detector("knn", **parameters).fit(fiood.FeatureSet(features=train)).score(fiood.FeatureSet(features=rows))
    )


def test_it_conforms():
    check_detector("knn")


@pytest.mark.parametrize(("precision", "atol"), [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("k", [1, 7, 300])
def test_the_distance_is_squared_and_between_unit_features(precision, atol, k):
    rows = RNG.standard_normal((20, 16)).astype(np.float32)
    a, b = (x.astype(float) / np.linalg.norm(x.astype(float), axis=1, keepdims=True) for x in (rows, F))
    expected = -np.sort(((a[:, None] - b) ** 2).sum(2), axis=1)[:, k - 1]
    np.testing.assert_allclose(score(rows, k=k, precision=precision), expected, atol=atol)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_zero_rows_are_at_distance_one_of_all_and_duplicates_at_zero(precision):
    train = np.vstack([F, F[:3], np.zeros((1, 16), np.float32)])
    rows = np.vstack([np.zeros((1, 16), np.float32), 5 * F[:1]])
    np.testing.assert_allclose(score(rows, train, k=4, precision=precision)[0], -1, rtol=1e-6)
    np.testing.assert_allclose(score(rows, train, k=2, precision=precision)[1], 0, atol=1e-6)


def test_a_bank_smaller_than_k_is_refused_before_the_search():
    with pytest.raises(StatisticError, match=r"knn\(k=1000\) has a bank of only 300 training images; lower k"):
        score(F)


def test_features_that_are_not_finite_never_reach_the_search():
    rows = F[:5].copy()
    rows[3, 2] = np.nan
    with pytest.raises(InputError, match="row 3"):
        score(rows, k=5)
