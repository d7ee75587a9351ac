import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import ParameterError
from fiood_core.testing import check_detector

DIM = 10
HEAD = fiood.Head(np.eye(DIM), np.zeros(DIM))


def energy(x):
    return np.log(np.exp(x).sum())


def score(rows, **parameters):
    detector = fiood.detector("ash-s", **parameters)
    detector.fit(fiood.FeatureSet(features=np.ones((1, DIM)), head=HEAD))
    return detector.score(fiood.FeatureSet(features=np.asarray(rows)))


def test_it_conforms():
    check_detector("ash-s")


def test_the_count_is_rounded_half_to_even_and_the_rest_is_scaled():
    x = np.arange(10.0) / 10
    kept = np.where(x >= 0.8, x, 0)  # 10 - round(7.5) = 2
    expected = energy(np.exp(x.sum() / kept.sum()) * kept)
    np.testing.assert_allclose(score([x], percentile=75.0, precision="float64"), [expected], rtol=1e-12)


def test_ties_at_the_boundary_keep_the_lowest_index():
    head = fiood.Head(np.diag(np.arange(1.0, DIM + 1)))
    x = np.full(DIM, 0.5)
    detector = fiood.detector("ash-s", percentile=70.0, precision="float64")
    detector.fit(fiood.FeatureSet(features=np.ones((1, DIM)), head=head))
    kept = np.where(np.arange(DIM) < 3, x, 0)
    expected = energy(np.arange(1, DIM + 1) * kept * np.exp(5 / 1.5))
    np.testing.assert_allclose(detector.score(fiood.FeatureSet(features=x[None])), [expected], rtol=1e-12)


def test_a_zero_row_has_the_energy_of_the_bias():
    assert score(np.zeros((1, DIM))) == pytest.approx(np.log(DIM))


def test_signed_features_are_left_as_published():
    x = -np.arange(1.0, 11)  # every activation negative: the exponent is large
    expected = energy(np.where(np.arange(10) == 0, -np.exp(55.0), 0))
    np.testing.assert_allclose(score([x], precision="float64"), [expected], rtol=1e-12)


def test_an_exponent_that_overflows_float32_does_not_overflow_the_score():
    x = np.full(DIM, -6.0)
    x[:2] = -0.25  # exponent 97
    scores = score([x, np.arange(10.0)], percentile=80.0)
    assert scores[0] == pytest.approx(np.log(8))
    np.testing.assert_allclose(scores, score([x, np.arange(10.0)], percentile=80.0, precision="float64"), rtol=1e-5)


def test_a_percentile_that_keeps_nothing_is_refused():
    with pytest.raises(ParameterError, match="keeps none of 10"):
        score(np.ones((1, DIM)), percentile=99.0)
