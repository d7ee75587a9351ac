import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import ParameterError
from fiood_core.testing import check_detector


def score(logits, **parameters):
    return fiood.detector("gen", **parameters).score(fiood.FeatureSet(logits=np.asarray(logits)))


def test_it_conforms():
    check_detector("gen")


def test_more_classes_than_there_are_means_all():
    logits = np.random.default_rng(0).standard_normal((5, 7))
    assert score(logits, m=100).tolist() == score(logits, m=7).tolist()
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(score(logits, precision="float64"), -((p * (1 - p)) ** 0.1).sum(1), rtol=1e-12)


def test_a_saturated_softmax_keeps_its_terms():
    p_rest = np.exp(-50.0)
    expected = -((p_rest * 2) ** 0.1 + 2 * p_rest**0.1)
    np.testing.assert_allclose(score([[50.0, 0.0, 0.0]], precision="float64"), [expected], rtol=1e-9)
    np.testing.assert_allclose(score(np.float32([[50, 0, 0]])), [expected], rtol=1e-6)
    assert score([[5e4, 0.0, 0.0]]).tolist() == [0.0]


def test_one_class_has_nothing_to_be_uncertain_about():
    assert score([[3.0], [-1.0]]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bad", [{"gamma": 0.0}, {"m": 0}, {"gamma": float("inf")}])
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(ParameterError, match="gen needs"):
        fiood.detector("gen", **bad)
