import numpy as np
from fiood_detector_msp import MSP

import fiood_core as fiood
from fiood_core.testing import check_detector


def test_score_is_the_largest_posterior():
    logits = np.log([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]])
    scores = MSP(precision="float64").score(fiood.FeatureSet(logits=logits))
    np.testing.assert_allclose(scores, [0.7, 0.4], rtol=1e-14)


def test_a_huge_margin_saturates_without_overflow():
    assert MSP().score(fiood.FeatureSet(logits=[[1e4, 0.0, -1e4]])).tolist() == [1.0]


def test_it_conforms():
    check_detector("msp")
