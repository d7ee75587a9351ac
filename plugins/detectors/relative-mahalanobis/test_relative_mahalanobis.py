import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import StatisticError
from fiood_core.testing import check_detector

NAME = "relative-mahalanobis"
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


def test_the_null_direction_of_a_layer_norm_gets_no_precision(caplog):
    train = training_set()
    with caplog.at_level("INFO"):
        detector = fiood.detector(NAME, precision="float64").fit(train)
    assert detector.whiten.shape == (16, 15)
    assert "rank 15 of 16 retained" in caplog.text
    rows = np.vstack([train.features[:5], np.zeros((1, 16)), train.features[:1] + 1])
    scores = detector.score(fiood.FeatureSet(features=rows))
    assert np.abs(scores).max() < 200  # off the hyperplane is neither most in- nor most out-of-distribution
    assert scores[6] == pytest.approx(scores[0], rel=1e-6)


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
