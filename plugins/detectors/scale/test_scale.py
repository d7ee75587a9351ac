import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.testing import check_detector

DIM = 20
HEAD = fiood.Head(np.eye(DIM), np.zeros(DIM))


def score(rows, **parameters):
    detector = fiood.detector("scale", **parameters)
    detector.fit(fiood.FeatureSet(features=np.ones((1, DIM)), head=HEAD))
    return detector.score(fiood.FeatureSet(features=np.asarray(rows)))


def test_it_conforms():
    check_detector("scale")


def test_nothing_is_pruned():
    x = np.linspace(0, 1, DIM)
    scaled = x * np.exp(x.sum() / np.sort(x)[-3:].sum())  # 20 - round(17) = 3
    expected = np.log(np.exp(scaled).sum())
    np.testing.assert_allclose(score([x], precision="float64"), [expected], rtol=1e-12)


def test_a_zero_row_has_the_energy_of_the_bias():
    assert score(np.zeros((1, DIM))) == pytest.approx(np.log(DIM))


def test_no_positive_activation_at_all_shrinks_the_row_to_nothing():
    x = -np.ones(DIM)
    x[:3] = 0  # the top sums to zero, the row does not: the exponent is minus infinity
    assert score([x]) == pytest.approx(np.log(DIM))


def test_an_exponent_that_overflows_float32_does_not_overflow_the_score():
    x = np.full(DIM, -6.0)
    x[:3] = -0.4  # exponent 86
    rows = np.stack([x, np.linspace(0, 1, DIM)])
    double = score(rows, precision="float64")
    assert double[0] < -1e30
    np.testing.assert_allclose(score(rows), double, rtol=1e-4)
