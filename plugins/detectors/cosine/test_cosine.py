import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import StatisticError
from fiood_core.testing import check_detector


def test_it_conforms():
    check_detector("cosine")


def test_means_are_of_raw_features():
    F, y = np.array([[10.0, 0.0], [0.0, 2.0], [0.0, -1.0], [0.0, -1.0]]), np.array([0, 0, 1, 1])
    detector = fiood.detector("cosine", precision="float64").fit(fiood.FeatureSet(features=F, labels=y))
    mean = np.array([5.0, 1.0]) / np.hypot(5, 1)
    rows = np.array([[3.0, 4.0], [0.0, -2.0], [0.0, 0.0]])
    scores = detector.score(fiood.FeatureSet(features=rows))
    np.testing.assert_allclose(scores, [mean @ [0.6, 0.8], 1.0, 0.0], rtol=1e-12)


def test_one_image_a_class_is_refused():
    with pytest.raises(StatisticError, match="two training images a class"):
        fiood.detector("cosine").fit(fiood.FeatureSet(features=np.eye(4), labels=np.arange(4)))
