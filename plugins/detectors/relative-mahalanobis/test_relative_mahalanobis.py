import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector("relative-mahalanobis")


def test_with_one_class_nothing_is_relative():
    x = np.random.default_rng(0).standard_normal((200, 4))
    train = fiood.FeatureSet(x, np.zeros(200, int))
    scores = fiood.detector("relative-mahalanobis", precision="float64").fit(train).score(fiood.FeatureSet(x))
    np.testing.assert_allclose(scores, 0, atol=1e-9)
