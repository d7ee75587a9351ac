import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import NotFittedError, ParameterError
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 8)).astype(np.float32)
X /= np.linalg.norm(X, axis=1, keepdims=True)
TEXT = fiood.Head(X[:5], temperature=0.01)


def test_it_conforms():
    check_detector("mcm")


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_text_embeddings_are_the_concepts_and_the_score_is_msps(precision):
    batch = fiood.FeatureSet(features=X, head=TEXT)
    msp = fiood.detector("msp", precision=precision).score(batch)
    unfitted = fiood.detector("mcm", precision=precision)
    fitted = fiood.detector("mcm", precision=precision).fit(
        fiood.FeatureSet(features=X, labels=np.arange(60) % 5, head=TEXT)
    )
    assert unfitted.score(batch).tolist() == fitted.score(batch).tolist() == msp.tolist()


def test_a_temperature_of_its_own_replaces_the_heads():
    batch = fiood.FeatureSet(features=X, head=TEXT)
    cosines = X.astype(float) @ X[:5].astype(float).T
    expected = 1 / np.exp(cosines - cosines.max(1, keepdims=True)).sum(1)
    scores = fiood.detector("mcm", temperature=1.0, precision="float64").score(batch)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_class_means_are_the_concepts_of_a_classifier():
    train = fiood.FeatureSet(features=X, labels=np.arange(60) % 5, head=fiood.Head(RNG.standard_normal((5, 8))))
    detector = fiood.detector("mcm", precision="float64").fit(train)
    means = np.stack([X[np.arange(60) % 5 == c].astype(float).mean(0) for c in range(5)])
    cosines = X.astype(float) @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
    cosines /= np.linalg.norm(X.astype(float), axis=1, keepdims=True)
    expected = 1 / np.exp(cosines - cosines.max(1, keepdims=True)).sum(1)
    np.testing.assert_allclose(detector.score(fiood.FeatureSet(features=X)), expected, rtol=1e-12)
    assert detector.score(fiood.FeatureSet(features=np.zeros((1, 8)))).tolist() == [0.2]


def test_without_text_or_class_means_it_is_not_fitted():
    with pytest.raises(NotFittedError):
        fiood.detector("mcm").score(fiood.FeatureSet(features=X))
    with pytest.raises(ParameterError):
        fiood.detector("mcm", temperature=0.0)
