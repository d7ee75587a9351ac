import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import StatisticError
from fiood_core.testing import check_detector

NAME = "relative-mahalanobis++"
RNG = np.random.default_rng(0)


def layer_norm(x):
    """Rows in the hyperplane of a LayerNorm, at float32 resolution."""
    normed = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    return normed.astype(np.float32)


def training_set(n=400, dim=16, classes=4):
    y = np.arange(n) % classes
    x = RNG.standard_normal((classes, dim))[y] + RNG.standard_normal((n, dim))
    return fiood.FeatureSet(features=layer_norm(x), labels=y)


def test_it_conforms():
    check_detector(NAME)


def test_the_length_of_a_row_does_not_matter_and_a_zero_row_is_scored():
    detector = fiood.detector(NAME, precision="float64").fit(training_set())
    rows = RNG.standard_normal((5, 16))
    both = detector.score(fiood.FeatureSet(features=np.vstack([rows, 1000 * rows])))
    np.testing.assert_allclose(both[:5], both[5:], rtol=1e-9)
    assert np.isfinite(detector.score(fiood.FeatureSet(features=np.zeros((1, 16))))).all()


def test_an_absent_class_takes_no_part_and_one_image_a_class_is_refused():
    train = training_set()
    moved = np.where(train.labels.numpy() == 3, 7, train.labels.numpy())
    renamed = fiood.FeatureSet(features=train.features, labels=moved)
    a, b = (fiood.detector(NAME).fit(t).score(fiood.FeatureSet(features=train.features)) for t in (train, renamed))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(StatisticError, match="two training images a class"):
        fiood.detector(NAME).fit(fiood.FeatureSet(features=train.features[:20], labels=np.arange(20)))


def test_training_rows_that_are_all_alike_are_refused():
    with pytest.raises(StatisticError, match="no direction with variance"):
        fiood.detector(NAME).fit(fiood.FeatureSet(features=np.ones((8, 3)), labels=np.arange(8) // 4))


def test_both_gaussians_are_of_unit_features():
    train = training_set()
    detector = fiood.detector(NAME, precision="float64").fit(train)
    unit = train.features.astype(float) / np.linalg.norm(train.features.astype(float), axis=1, keepdims=True)
    precision = np.linalg.pinv(np.cov(unit.T, bias=True), rcond=1e-12, hermitian=True)
    np.testing.assert_allclose(detector.whiten_all @ detector.whiten_all.T, precision, rtol=1e-6, atol=1e-6)
