import numpy as np
import pytest
from fiood_detector_margin import Margin

import fiood_core as fiood
from fiood_core.errors import InputError
from fiood_core.testing import check_detector

POSTERIOR = np.array([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2]])


def test_it_conforms():
    check_detector(Margin)


def test_probability_margin_is_the_lead_of_the_likeliest_class():
    scores = Margin(precision="float64").score(fiood.FeatureSet(logits=np.log(POSTERIOR) + 3))
    np.testing.assert_allclose(scores, [0.5, 0.0], rtol=1e-13, atol=1e-16)


def test_logit_margin_is_the_lead_in_logits():
    scores = Margin(space="logit").score(fiood.FeatureSet(logits=[[3.0, 7.5, -1.0]]))
    assert scores.tolist() == [4.5]


def test_one_class_has_no_second():
    with pytest.raises(InputError, match="at least two classes"):
        Margin().score(fiood.FeatureSet(logits=[[1.0]]))
