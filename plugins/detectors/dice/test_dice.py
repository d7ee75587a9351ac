import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
F = RNG.standard_normal((50, 6)) + 1


def test_it_conforms():
    check_detector("dice")


def test_the_percentile_is_over_all_classes_so_one_may_lose_every_weight():
    weight, bias = np.ones((3, 6)), np.array([0.0, 5.0, 0.0])
    weight[2] = -1  # contributes nothing above the median
    detector = fiood.detector("dice", percentile=50.0, precision="float64")
    detector.fit(fiood.FeatureSet(features=F, head=fiood.Head(weight, bias)))
    assert not detector.weight[2].any()
    V = weight * F.mean(0)
    expected = np.log(np.exp(F @ (weight * (np.percentile(V, 50) < V)).T + bias).sum(1))
    np.testing.assert_allclose(detector.score(fiood.FeatureSet(features=F)), expected, rtol=1e-12)


def test_equal_contributions_are_not_above_their_percentile():
    head = fiood.Head(np.ones((2, 3)), np.zeros(2))
    detector = fiood.detector("dice").fit(fiood.FeatureSet(features=np.ones((4, 3)), head=head))
    assert not detector.weight.any()


def test_a_temperature_divides_weight_and_bias():
    head = fiood.Head(RNG.standard_normal((3, 6)), RNG.standard_normal(3))
    scaled = fiood.Head(head.weight * 2, head.bias * 2, temperature=2.0)
    a, b = (fiood.detector("dice").fit(fiood.FeatureSet(features=F, head=h)) for h in (head, scaled))
    np.testing.assert_allclose(a.score(fiood.FeatureSet(features=F)), b.score(fiood.FeatureSet(features=F)), rtol=1e-6)
