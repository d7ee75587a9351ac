import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector("mahalanobis")


def test_the_score_is_minus_the_squared_distance_to_the_nearest_mean():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.standard_normal((200, 4)) + 3 * y[:, None]
    means = np.stack([x[y == c].mean(0) for c in (0, 1)])
    precision = np.linalg.inv((x - means[y]).T @ (x - means[y]) / 200)
    away = x[:, None] - means
    expected = -np.einsum("ncd,de,nce->nc", away, precision, away).min(1)
    found = fiood.detector("mahalanobis", precision="float64").fit(fiood.FeatureSet(x, y)).score(fiood.FeatureSet(x))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
