import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
F = (RNG.standard_normal((300, 4)) @ RNG.standard_normal((4, 12)) + 0.1 * RNG.standard_normal((300, 12))) + 3
L = RNG.standard_normal((300, 5))


def direct(features, rows, top, variance=0.9):
    std = np.where(features.std(0) > 1e-12, features.std(0), 1)
    Z, z = (features - features.mean(0)) / std, (rows - features.mean(0)) / std
    _, s, V = np.linalg.svd(Z, full_matrices=False)
    d = 1 + int(np.argmax(np.cumsum(s**2) / (s**2).sum() >= variance))
    return np.linalg.norm(z @ V[:d].T, axis=1) / np.linalg.norm(z, axis=1) * top


def fitted(features, **parameters):
    return fiood.detector("neco", precision="float64", **parameters).fit(fiood.FeatureSet(features=features))


def test_it_conforms():
    check_detector("neco")


def test_the_score_is_the_ratio_times_the_largest_logit():
    scores = fitted(F).score(fiood.FeatureSet(features=F, logits=L))
    np.testing.assert_allclose(scores, direct(F, F, L.max(1)), rtol=1e-9)


def test_constant_activations_are_not_blown_up():
    features = F.copy()
    features[:, 3], features[:, 5] = 0.0, 1 / 3
    rows = features + 0.01 * RNG.standard_normal(features.shape)
    scores = fitted(features).score(fiood.FeatureSet(features=rows, logits=L))
    np.testing.assert_allclose(scores, direct(features, rows, L.max(1)), rtol=1e-9)


def test_the_mean_itself_has_ratio_zero():
    centred = np.array([[1.0, 2.0], [-1.0, 0.0], [1.0, -2.0], [-1.0, 0.0]])
    scores = fitted(centred).score(fiood.FeatureSet(features=np.zeros((1, 2)), logits=[[4.0, 1.0]]))
    assert scores.tolist() == [0.0]


def test_all_of_the_variance_takes_every_direction():
    assert fitted(F, variance=1.0).directions.shape[1] <= 12
    np.testing.assert_allclose(
        fitted(F, variance=1.0).score(fiood.FeatureSet(features=F, logits=L)), L.max(1), rtol=1e-9
    )
