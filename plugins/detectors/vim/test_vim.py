import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import StatisticError
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
F = RNG.standard_normal((200, 12)) * np.linspace(0.1, 2, 12) + 1


def direct(head, dim, rows):
    W, b = head.weight.numpy(), np.zeros(head.num_rows) if head.bias is None else head.bias.numpy()
    u = -np.linalg.pinv(W) @ b
    null = np.linalg.eigh((F - u).T @ (F - u))[1][:, : 12 - dim]
    train, logits = F @ W.T + b, rows @ W.T + b
    alpha = train.max(1).mean() / np.linalg.norm((F - u) @ null, axis=1).mean()
    return np.log(np.exp(logits).sum(1)) - alpha * np.linalg.norm((rows - u) @ null, axis=1)


def test_it_conforms():
    check_detector("vim")


@pytest.mark.parametrize("classes", [4, 30])
@pytest.mark.parametrize("bias", [True, False])
def test_the_score_is_energy_less_the_scaled_residual(classes, bias):
    head = fiood.Head(RNG.standard_normal((classes, 12)), RNG.standard_normal(classes) if bias else None)
    train = fiood.FeatureSet(features=F, head=head)
    for dim in (None, 3):
        detector = fiood.detector("vim", dim=dim, precision="float64").fit(train)
        np.testing.assert_allclose(detector.score(train), direct(head, dim or 6, F), rtol=1e-9, atol=1e-10)


def test_a_temperature_is_part_of_the_logits():
    weight = RNG.standard_normal((4, 12))
    cold, plain = fiood.Head(weight, temperature=0.5), fiood.Head(2 * weight)
    scores = [
        fiood.detector("vim").fit(fiood.FeatureSet(features=F, head=h)).score(fiood.FeatureSet(features=F, head=h))
        for h in (cold, plain)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


def test_too_few_images_for_a_residual_are_refused():
    head = fiood.Head(RNG.standard_normal((4, 12)))
    with pytest.raises(StatisticError, match=r"vim\(dim=6\) leaves no residual in 6 training images"):
        fiood.detector("vim").fit(fiood.FeatureSet(features=F[:6], head=head))
    with pytest.raises(StatisticError, match=r"vim\(dim=12\) leaves no residual"):
        fiood.detector("vim", dim=12).fit(fiood.FeatureSet(features=F, head=head))
    flat = F[:, :5] @ RNG.standard_normal((5, 12))
    with pytest.raises(StatisticError, match="no variance beyond"):
        fiood.detector("vim", dim=6).fit(fiood.FeatureSet(features=flat, head=head))


def test_a_rank_deficient_head_is_solved_by_least_norm():
    weight = RNG.standard_normal((4, 12))
    head = fiood.Head(np.vstack([weight, weight]), np.r_[np.ones(4), np.zeros(4)])
    train = fiood.FeatureSet(features=F, head=head)
    scores = fiood.detector("vim", dim=6, precision="float64").fit(train).score(train)
    np.testing.assert_allclose(scores, direct(head, 6, F), rtol=1e-9, atol=1e-10)
