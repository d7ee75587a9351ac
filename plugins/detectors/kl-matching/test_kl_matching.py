import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import StatisticError
from fiood_core.testing import check_detector

TRAIN = np.log([[0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.8, 0.1]])


def test_it_conforms():
    check_detector("kl-matching")


def test_a_class_that_is_never_predicted_has_no_template():
    detector = fiood.detector("kl-matching", precision="float64").fit(fiood.FeatureSet(logits=TRAIN))
    assert detector.log_templates.shape == (2, 3)
    p, templates = np.array([0.1, 0.1, 0.8]), np.array([[0.7, 0.2, 0.1], [0.15, 0.65, 0.2]])
    expected = -(p * np.log(p / templates)).sum(1).min()
    np.testing.assert_allclose(detector.score(fiood.FeatureSet(logits=np.log(p)[None])), [expected], rtol=1e-12)


def test_a_template_itself_is_at_distance_zero_and_saturation_is_finite():
    detector = fiood.detector("kl-matching", precision="float64").fit(fiood.FeatureSet(logits=TRAIN))
    rows = np.array([np.log([0.7, 0.2, 0.1]), [0.0, 0.0, 1e4]])
    scores = detector.score(fiood.FeatureSet(logits=rows))
    assert scores[0] == pytest.approx(0, abs=1e-12)
    assert scores[1] == pytest.approx(np.log(0.2), rel=1e-9)


def test_one_image_a_predicted_class_is_refused():
    with pytest.raises(StatisticError, match="by predictions; give a larger training set"):
        fiood.detector("kl-matching").fit(fiood.FeatureSet(logits=np.eye(5)))
