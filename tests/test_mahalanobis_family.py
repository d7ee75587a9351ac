"""What the four detectors of the Mahalanobis family have in common: see :mod:`fiood_core.gaussian`."""

import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import StatisticError

RAW = ("mahalanobis", "relative-mahalanobis")
UNIT = ("mahalanobis++", "relative-mahalanobis++")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def train(rng):
    """Four classes of 16 features in the hyperplane of a LayerNorm, at float32 resolution."""
    y = np.arange(400) % 4
    x = rng.standard_normal((4, 16))[y] + rng.standard_normal((400, 16))
    normed = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    return fiood.FeatureSet(features=normed.astype(np.float32), labels=y)


@pytest.mark.parametrize("name", RAW)
def test_the_null_direction_of_a_layer_norm_gets_no_precision(name, train, caplog):
    with caplog.at_level("INFO"):
        detector = fiood.detector(name, precision="float64").fit(train)
    assert detector.whiten.shape == (16, 15)
    assert "rank 15 of 16 retained" in caplog.text
    rows = np.vstack([train.features[:5], np.zeros((1, 16)), train.features[:1] + 1])
    scores = detector.score(fiood.FeatureSet(features=rows))
    assert np.abs(scores).max() < 200  # off the hyperplane is neither most in- nor most out-of-distribution
    assert scores[6] == pytest.approx(scores[0], rel=1e-6)


@pytest.mark.parametrize("name", UNIT)
def test_the_length_of_a_row_does_not_matter_and_a_zero_row_is_scored(name, train, rng):
    detector = fiood.detector(name, precision="float64").fit(train)
    rows = rng.standard_normal((5, 16))
    both = detector.score(fiood.FeatureSet(features=np.vstack([rows, 1000 * rows])))
    np.testing.assert_allclose(both[:5], both[5:], rtol=1e-9)
    assert np.isfinite(detector.score(fiood.FeatureSet(features=np.zeros((1, 16))))).all()


@pytest.mark.parametrize("name", RAW + UNIT)
def test_an_absent_class_takes_no_part_and_one_image_a_class_is_refused(name, train):
    moved = np.where(train.labels.numpy() == 3, 7, train.labels.numpy())
    renamed = fiood.FeatureSet(features=train.features, labels=moved)
    a, b = (fiood.detector(name).fit(t).score(fiood.FeatureSet(features=train.features)) for t in (train, renamed))
    np.testing.assert_allclose(a, b, rtol=1e-6)
    with pytest.raises(StatisticError, match="two training images a class"):
        fiood.detector(name).fit(fiood.FeatureSet(features=train.features[:20], labels=np.arange(20)))


@pytest.mark.parametrize("name", RAW + UNIT)
def test_training_rows_that_are_all_alike_are_refused(name):
    with pytest.raises(StatisticError, match="no direction with variance"):
        fiood.detector(name).fit(fiood.FeatureSet(features=np.ones((8, 3)), labels=np.arange(8) // 4))


def test_collapsed_classes_leave_no_rounding_noise_in_the_inverse(rng):
    y = np.arange(3000) % 30
    x = 1e4 * rng.standard_normal((30, 12))[y] + 1e-2 * rng.standard_normal((3000, 12))
    x[:, -1] = x[:, 0]  # a null direction of the within-class covariance, under large between-class variance
    detector = fiood.detector("mahalanobis", precision="float64").fit(fiood.FeatureSet(features=x, labels=y))
    assert detector.whiten.shape[1] == 11


def test_both_gaussians_of_the_relative_score_are_of_unit_features(train):
    detector = fiood.detector("relative-mahalanobis++", precision="float64").fit(train)
    unit = train.features.astype(float) / np.linalg.norm(train.features.astype(float), axis=1, keepdims=True)
    precision = np.linalg.pinv(np.cov(unit.T, bias=True), rcond=1e-12, hermitian=True)
    np.testing.assert_allclose(detector.whiten_all @ detector.whiten_all.T, precision, rtol=1e-6, atol=1e-6)
