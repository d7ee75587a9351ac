import fiood_core as fiood
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector("max-logit")


def test_features_and_a_head_are_enough():
    data = fiood.FeatureSet(features=[[1.0, 2.0], [0.0, 0.0]], head=fiood.Head([[1.0, 0.0], [0.0, 3.0]], [0.5, -1.0]))
    assert fiood.detector("max-logit").score(data).tolist() == [5.0, 0.5]


def test_the_temperature_of_a_head_divides():
    data = fiood.FeatureSet(features=[[1.0, 2.0]], head=fiood.Head([[1.0, 0.0], [0.0, 3.0]], temperature=0.5))
    assert fiood.detector("max-logit").score(data).tolist() == [12.0]
