import numpy as np
import pytest
import torch
from fiood_detector_neglabel import NegLabel, grouped_scores

import fiood_core as fiood
from fiood_core.errors import InputError
from fiood_core.testing import check_detector


def example(n=5, classes=4, labels=3000, seed=0):
    rng = np.random.default_rng(seed)
    rows = [rng.standard_normal((k, 16)) for k in (n, classes, labels)]
    features, names, negatives = (r / np.linalg.norm(r, axis=1, keepdims=True) for r in rows)
    return features, names, negatives


def batch(features, names, negatives):
    return fiood.FeatureSet(
        features=features,
        head=fiood.Head(names, temperature=0.01),
        negatives=fiood.Head(negatives, temperature=0.01),
    )


def test_it_conforms():
    check_detector(NegLabel)


def test_score_is_the_share_of_the_id_names():
    features, names, negatives = example()
    mass, other = (np.exp(features @ w.T / 0.01).sum(axis=1) for w in (names, negatives))
    scores = NegLabel(precision="float64").score(batch(features, names, negatives))
    np.testing.assert_allclose(scores, mass / (mass + other), rtol=1e-11)


def test_a_repeated_label_counts_again():
    features, names, negatives = example(labels=3)
    once, twice = (
        NegLabel(form="log-odds").score(batch(features, names, w)) for w in (negatives, np.tile(negatives, (2, 1)))
    )
    np.testing.assert_allclose(once - twice, np.log(2), rtol=1e-4)


def test_log_odds_do_not_tie_where_the_share_is_one():
    logits = np.array([[60.0], [61.0]])
    features, negatives = np.ones((2, 1)), fiood.Head([[0.0]])
    given = fiood.FeatureSet(features=features, logits=logits, negatives=negatives)
    assert NegLabel().score(given).tolist() == [1.0, 1.0]
    assert NegLabel(form="log-odds").score(given).tolist() == [60.0, 61.0]


def test_an_empty_vocabulary_is_refused():
    features, names, _ = example()
    with pytest.raises(InputError, match="vocabulary is empty"):
        NegLabel().score(batch(features, names, np.zeros((0, 16))))


def test_one_group_is_the_ungrouped_score_and_more_are_never_below_it():
    features, names, negatives = example(labels=120)
    logits, labels = (torch.from_numpy(features @ w.T / 0.01) for w in (names, negatives))
    ungrouped = NegLabel(precision="float64").score(batch(features, names, negatives))
    one = grouped_scores(logits, labels, 1, torch.arange(120)).mean(dim=1)
    many = grouped_scores(logits, labels, 10, torch.randperm(120, generator=torch.Generator().manual_seed(0)))
    np.testing.assert_allclose(one.numpy(), ungrouped, rtol=1e-11)
    assert (many.mean(dim=1).numpy() >= ungrouped).all()


def test_a_permutation_of_other_columns_is_refused():
    with pytest.raises(InputError, match="permutation must order the 4 labels"):
        grouped_scores(torch.zeros(1, 2), torch.zeros(1, 5), 2, torch.arange(5))
    with pytest.raises(InputError, match="groups must be at least 1"):
        grouped_scores([[0.0, 0.0]], [[0.0, 0.0]], 0, [0, 1])
