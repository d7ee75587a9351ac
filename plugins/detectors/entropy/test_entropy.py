import numpy as np
from fiood_detector_entropy import Entropy

import fiood_core as fiood
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector(Entropy)


def test_score_is_minus_the_entropy_in_nats():
    posterior = np.array([[0.7, 0.2, 0.1], [1 / 3, 1 / 3, 1 / 3]])
    scores = Entropy(precision="float64").score(fiood.FeatureSet(logits=np.log(posterior)))
    np.testing.assert_allclose(scores, (posterior * np.log(posterior)).sum(axis=1), rtol=1e-13)


def test_a_class_without_mass_adds_nothing():
    assert Entropy().score(fiood.FeatureSet(logits=[[1e4, 0.0, -1e4]])).tolist() == [0.0]


def test_near_certain_images_keep_their_order_in_float32():
    logits = np.array([[30.0, 0.0], [31.0, 0.0], [32.0, 0.0]], dtype=np.float32)
    assert (np.diff(Entropy().score(fiood.FeatureSet(logits=logits))) > 0).all()
