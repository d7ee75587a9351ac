"""A training set that is too small for a statistic is refused with what would mend it, and the others go on."""

import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import StatisticError

REFUSED = {
    "kl-matching": "larger training set",
    "mahalanobis": "two training images a class",
    "relative-mahalanobis": "two training images a class",
    "mahalanobis++": "two training images a class",
    "relative-mahalanobis++": "two training images a class",
    "cosine": "two training images a class",
    "mcm": "two training images a class",
    "knn": "lower k",
    "vim": "lower dim",
    "nnguide": "raise bank_fraction",
}
SCORED = ["msp", "max-logit", "energy", "gen", "react", "ash-s", "scale", "dice", "fdbd", "neco", "nac"]


@pytest.fixture(scope="module")
def sets():
    """One training image a class: 100 classes, 256 features."""
    rng = np.random.default_rng(0)
    head = fiood.Head(rng.standard_normal((100, 256)).astype(np.float32), np.zeros(100, np.float32))
    train, test = (rng.standard_normal((n, 256)).astype(np.float32) for n in (100, 30))
    return fiood.FeatureSet(features=train, labels=np.arange(100), head=head), fiood.FeatureSet(test, head=head)


def test_one_image_a_class_leaves_the_detectors_that_do_not_go_by_class(sets):
    train, test = sets
    errors = {}
    table = fiood.score_all([*REFUSED, *SCORED], train, {"test": test}, on_error=errors.__setitem__)
    assert list(table) == SCORED
    assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(REFUSED, StatisticError)
    for name, mend in REFUSED.items():
        assert mend in str(errors[name])


def test_the_parameters_that_the_refusals_name_mend_them(sets):
    train, test = sets
    mended = ["knn(k=5)", "vim(dim=50)", "nnguide(k=5, bank_fraction=0.1)"]
    assert list(fiood.score_all(mended, train, {"test": test})) == mended


def test_without_on_error_the_first_refusal_is_raised(sets):
    with pytest.raises(StatisticError, match="lower k"):
        fiood.score_all(["msp", "knn"], sets[0], {})
