import gc
import weakref

import numpy as np
import pytest
import torch

import fiood_core as fiood
from fiood_core.errors import InputError


def unit(n, dim, seed):
    rows = np.random.default_rng(seed).standard_normal((n, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("bias", [False, True])
def test_streamed_reduction_equals_the_whole_product(bias):
    weight, features = torch.from_numpy(unit(2500, 16, 0)), torch.from_numpy(unit(7, 16, 1))
    head = fiood.Head(weight, np.linspace(-1, 1, 2500) if bias else None, temperature=0.01)
    logits = head(features)
    top, log_sum_exp = head.reduce(features)
    torch.testing.assert_close(top, logits.amax(dim=1), rtol=1e-13, atol=0)
    torch.testing.assert_close(log_sum_exp, logits.logsumexp(dim=1), rtol=1e-13, atol=0)


def test_float32_exponentials_stay_within_what_float32_cosines_allow():
    """A float32 cosine is off by about 1e-7, which τ = 0.01 makes 1e-5; the reduction adds nothing to that."""
    weight, features = unit(24_600, 512, 0), unit(32, 512, 1)
    exact = (features @ weight.T / 0.01 * np.log2(np.e)).astype(np.longdouble)
    exact = np.log(np.sum(np.exp2(exact - exact.max(1, keepdims=True)), 1)) + exact.max(1) / np.log2(np.e)
    _, found = fiood.Head(weight.astype(np.float32), temperature=0.01).reduce(torch.from_numpy(features).float())
    assert np.abs(found.numpy() - exact.astype(float)).max() < 3e-5


def test_no_labels_reduce_to_minus_infinity():
    top, log_sum_exp = fiood.Head(np.zeros((0, 4))).reduce(torch.ones(3, 4))
    assert top.tolist() == log_sum_exp.tolist() == [-np.inf] * 3


def test_negatives_of_another_width_are_refused():
    with pytest.raises(InputError, match="negative labels are 5 wide"):
        fiood.FeatureSet(features=np.zeros((2, 4)), negatives=fiood.Head(np.zeros((3, 5))))


def test_a_block_without_negatives_says_what_to_pass():
    block = next(fiood.FeatureSet(features=np.zeros((2, 4))).blocks())
    with pytest.raises(InputError, match="negatives=Head"):
        _ = block.negative_log_sum_exp


def test_log_posterior_keeps_the_complement_of_a_near_certain_class():
    logits = np.array([[30.0, 0.0], [31.0, 0.0]], dtype=np.float32)
    log_posterior = next(fiood.FeatureSet(logits=logits).blocks()).log_posterior
    np.testing.assert_allclose(-log_posterior[:, 0].numpy(), np.exp([-30.0, -31.0]), rtol=1e-2)


def test_a_block_is_freed_without_the_garbage_collector():
    gc.disable()
    try:
        block = next(fiood.FeatureSet(logits=np.zeros((2, 4), dtype=np.float32)).blocks())
        assert block.at("float64").at("float32") is block
        assert block.at("float64") is block.at("float64")
        derived = weakref.ref(block.at("float64").logits)
        del block
        assert derived() is None
    finally:
        gc.enable()
