import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector("relative-mahalanobis++")


def test_it_is_the_distance_to_all_less_that_to_the_nearest_class():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.standard_normal((200, 4)) + 3 * y[:, None]
    one = fiood.detector("relative-mahalanobis++", precision="float64").fit(fiood.FeatureSet(x, np.zeros(200, int)))
    two = fiood.detector("relative-mahalanobis++", precision="float64").fit(fiood.FeatureSet(x, y))
    np.testing.assert_allclose(one.score(fiood.FeatureSet(x)), 0, atol=1e-9)
    assert two.score(fiood.FeatureSet(x)).mean() > 0
