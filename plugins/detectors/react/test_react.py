import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import ParameterError
from fiood_core.testing import check_detector

HEAD = fiood.Head([[1.0, 0.0], [0.0, 1.0]])


def test_it_conforms():
    check_detector("react")


def test_large_activations_are_clipped_and_negative_ones_are_not():
    train = fiood.FeatureSet(features=np.arange(200.0).reshape(100, 2), head=HEAD)
    detector = fiood.detector("react", quantile=0.9, precision="float64").fit(train)
    assert float(detector.threshold) == np.quantile(np.arange(200), 0.9)
    rows = np.array([[1000.0, -1000.0], [3.0, 4.0]])
    expected = [179.1, 4 + np.log1p(np.exp(-1))]
    np.testing.assert_allclose(detector.score(fiood.FeatureSet(features=rows)), expected, rtol=1e-12)


def test_every_activation_of_the_training_set_counts_once():
    rng = np.random.default_rng(0)
    features = rng.standard_normal((5000, 2)).astype(np.float32)  # more than a block
    detector = fiood.detector("react", preset="openood").fit(fiood.FeatureSet(features=features, head=HEAD))
    assert float(detector.threshold) == np.quantile(features.astype(float), 0.9)


def test_a_quantile_is_a_share():
    with pytest.raises(ParameterError, match=r"quantile in \[0, 1\]"):
        fiood.detector("react", quantile=99.0)
