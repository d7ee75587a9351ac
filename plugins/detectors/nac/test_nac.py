import numpy as np
import pytest
import torch

import fiood_core as fiood
from fiood_core.column import ImageBatch
from fiood_core.coverage import state_edges, state_intervals
from fiood_core.errors import InputError, ParameterError, StatisticError
from fiood_core.layers import LayerGradients
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
HEAD = fiood.Head(RNG.standard_normal((6, 10)), RNG.standard_normal(6))
F = RNG.standard_normal((300, 10))
DATA = fiood.FeatureSet(features=F, labels=np.arange(300) % 6, head=HEAD)


def test_it_conforms():
    check_detector("nac")


def test_the_closed_form_is_the_gradient():
    x = torch.from_numpy(F).requires_grad_()
    loss = -torch.log_softmax(HEAD(x), dim=1).mean(dim=1).sum()
    (gradient,) = torch.autograd.grad(loss, x)
    columns = {LayerGradients("final").key: torch.stack([torch.from_numpy(F), gradient], dim=1).numpy()}
    data = fiood.FeatureSet(features=F, labels=DATA.labels.numpy(), head=HEAD, columns=columns)
    closed = fiood.detector("nac", alpha=5.0, images_per_class=None, precision="float64").fit(data)
    column = fiood.detector("nac", layers=(("final", 5.0, 50, 3),), images_per_class=None, precision="float64").fit(
        data
    )
    np.testing.assert_allclose(column.score(data), closed.score(data), atol=1e-9)


def test_edges_are_passed_as_the_sigmoid_passes_them():
    products = torch.cat([torch.zeros(1), torch.tensor([-1e9, 1e9]), torch.randn(5000)]).double()
    for bins, alpha in ((50, 1.0), (500, 3.0), (4, 100.0)):
        states = 1 / (1 + np.exp(-alpha * products.numpy().clip(-600 / alpha, 600 / alpha)))
        expected = np.searchsorted(state_edges(bins), states, side="right") - 1
        np.testing.assert_array_equal(state_intervals(products, bins, alpha), expected.clip(0, bins - 3))


def test_a_subset_of_images_per_class_is_counted():
    detector = fiood.detector("nac", images_per_class=2).fit(DATA)
    assert detector.covered0.sum() <= 12 * 10
    assert int(detector.full0) == 1
    with pytest.raises(StatisticError, match="images_per_class=None"):
        fiood.detector("nac").fit(fiood.FeatureSet(features=F, head=HEAD))


def test_equal_coverage_ties_exactly_and_lies_between_zero_and_one():
    detector = fiood.detector("nac", images_per_class=None, coverage_fraction=0.05).fit(DATA)
    scores = detector.score(DATA)
    assert np.allclose(scores * 15 * 10, np.round(scores * 15 * 10), atol=1e-9)
    assert 0 <= scores.min() <= scores.max() <= 1


@pytest.mark.parametrize(
    "bad",
    [{"bins": 51}, {"alpha": 0.0}, {"coverage_fraction": 0.0}, {"images_per_class": 0}, {"layers": (("a", 1.0),)}],
)
def test_parameters_out_of_range_are_refused(bad):
    with pytest.raises(ParameterError, match="nac"):
        fiood.detector("nac", **bad)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.final = torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.final(self.conv(x).relu().mean(dim=(2, 3)))


def test_inner_layers_are_summed_over_positions_and_share_a_pass():
    torch.manual_seed(0)
    network = Network()
    backbone = fiood.from_module(network, transform=lambda _: torch.zeros(3, 8, 8))
    passes = []
    network.register_forward_hook(lambda *_: passes.append(1))
    detector = fiood.detector("nac", layers=(("conv", 1.0, 50, 3), ("final", 1.0, 50, 3)))
    images = torch.randn(6, 3, 8, 8)
    batch = ImageBatch(images, torch.zeros(6, 4), torch.zeros(6, 5))
    first, second = (column.compute(batch, backbone, backbone.head) for column in detector.columns)
    assert len(passes) == 1
    assert first.shape == (6, 2, 4)
    assert second.shape == (6, 2, 5)
    z = network.conv(images).detach().requires_grad_()
    loss = -torch.log_softmax(network.final(z.relu().mean(dim=(2, 3))), dim=1).mean(dim=1).sum()
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(first[:, 0], z.detach().sum(dim=(2, 3)))
    torch.testing.assert_close(first[:, 1], gradient.sum(dim=(2, 3)))
    assert all(p.grad is None for p in network.parameters())
    with pytest.raises(InputError, match="no layer 'nowhere'"):
        LayerGradients("nowhere").compute(batch, backbone, backbone.head)
