import numpy as np
import pytest
from fiood_detector_eoe import EOE

import fiood_core as fiood
from fiood_core.errors import ParameterError
from fiood_core.testing import check_detector

COSINES = np.array([[0.30, 0.25, 0.20], [0.20, 0.21, 0.19]])
OUTLIERS = np.array([[0.28, 0.10], [0.26, 0.25]])


def batch(cosines=COSINES, outliers=OUTLIERS):
    """Cosines as features, so that an identity reads them."""
    eye = np.eye(outliers.shape[1])
    return fiood.FeatureSet(features=outliers, logits=cosines / 0.01, negatives=fiood.Head(eye, temperature=0.01))


def test_it_conforms():
    check_detector(EOE)


@pytest.mark.parametrize("variant", ["max", "share"])
def test_score_is_the_posterior_less_the_penalty(variant):
    mass = np.exp(np.hstack([COSINES, OUTLIERS]) / 0.01)
    posterior = mass / mass.sum(axis=1, keepdims=True)
    inside = posterior[:, :3].max(axis=1) if variant == "max" else posterior[:, :3].sum(axis=1)
    scores = EOE(variant=variant, beta=0.5, precision="float64").score(batch())
    np.testing.assert_allclose(scores, inside - 0.5 * posterior[:, 3:].max(axis=1), rtol=1e-11)


def test_without_outliers_it_is_maximum_concept_matching():
    logits = COSINES / 0.01
    given = fiood.FeatureSet(features=OUTLIERS, logits=logits, negatives=fiood.Head(np.zeros((0, 2))))
    posterior = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected = 1 / posterior.sum(axis=1)
    np.testing.assert_allclose(EOE(precision="float64").score(given), expected, rtol=1e-12)


def test_a_negative_weight_is_refused():
    with pytest.raises(ParameterError, match="beta"):
        EOE(beta=-1.0)
