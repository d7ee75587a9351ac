import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector("mahalanobis++")


def test_only_the_direction_of_training_and_test_rows_matters():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.standard_normal((200, 4)) + 3 * y[:, None]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    plus = fiood.detector("mahalanobis++", precision="float64").fit(fiood.FeatureSet(x, y))
    again = fiood.detector("mahalanobis++", precision="float64").fit(fiood.FeatureSet(unit, y))
    np.testing.assert_allclose(plus.score(fiood.FeatureSet(x)), again.score(fiood.FeatureSet(unit)), rtol=1e-9)
