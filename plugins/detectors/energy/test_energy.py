import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector("energy")


def test_score_is_the_log_sum_exp():
    logits = np.log([[0.7, 0.2, 0.1], [1.0, 1.0, 1.0]])
    scores = fiood.detector("energy", precision="float64").score(fiood.FeatureSet(logits=logits))
    np.testing.assert_allclose(scores, [0.0, np.log(3)], atol=1e-15)


def test_large_logits_do_not_overflow():
    logits = np.array([[1e4, 1e4], [-1e4, -1e4]], dtype=np.float32)
    np.testing.assert_allclose(fiood.detector("energy").score(fiood.FeatureSet(logits=logits)), [1e4, -1e4], rtol=1e-4)
