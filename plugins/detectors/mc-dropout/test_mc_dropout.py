import numpy as np
import pytest
import torch
from fiood_detector_mc_dropout import SAMPLES, MCDropout, dropping, uncertainties
from torch import nn
from torchvision.transforms import Compose, Resize, ToTensor

import fiood_core as fiood
from fiood_core.column import ImageBatch
from fiood_core.errors import InputError, ParameterError
from fiood_core.testing import check_detector

PIXELS = Compose([Resize((2, 2)), ToTensor()])


def backbone(*dropout):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.BatchNorm1d(16), *dropout, nn.Linear(16, 4))
    return fiood.from_module(network.eval(), transform=PIXELS, name="tiny")


def compute(model, images, **parameters):
    (column,) = MCDropout(**parameters).columns
    torch.manual_seed(7)
    return column.compute(ImageBatch(images, images, images), model, model.head)


def test_equal_posteriors_have_entropy_and_no_mutual_information():
    posterior = torch.tensor([0.5, 0.25, 0.25, 0.0], dtype=torch.float64).expand(1, 3, 4)
    entropy = 1.5 * np.log(2)
    np.testing.assert_allclose(uncertainties(posterior), [[entropy, 0]], atol=1e-15)


def test_certain_passes_that_disagree_are_all_mutual_information():
    samples = torch.eye(4, dtype=torch.float64)[None]
    np.testing.assert_allclose(uncertainties(samples), [[np.log(4), np.log(4)]], rtol=1e-14)


def test_only_dropout_layers_are_put_to_work_and_the_model_is_left_in_eval_mode():
    model = backbone(nn.Dropout(0.5))
    with dropping(model.module):
        assert [type(layer) for layer in model.module if layer.training] == [nn.Dropout]
    assert not any(layer.training for layer in model.module.modules())


def test_passes_differ_and_a_seed_repeats_them():
    images = torch.randn(5, 3, 2, 2)
    first, again = compute(backbone(nn.Dropout(0.5)), images), compute(backbone(nn.Dropout(0.5)), images)
    assert torch.equal(first, again)
    assert (first[:, 1] > 0).all()


@pytest.mark.parametrize("dropout", [(nn.Dropout(0.0),), ()])
def test_a_model_without_active_dropout_is_refused(dropout):
    model = backbone(*dropout)
    with pytest.raises(InputError, match="no dropout layer"):
        compute(model, torch.randn(2, 3, 2, 2))


def test_injected_posteriors_give_either_measure():
    samples = torch.rand(6, 30, 4, dtype=torch.float64).softmax(dim=2)
    batch = fiood.FeatureSet(columns={SAMPLES: samples})
    expected = -uncertainties(samples)
    for column, measure in enumerate(("entropy", "mutual-information")):
        np.testing.assert_allclose(MCDropout(measure=measure, precision="float64").score(batch), expected[:, column])


def test_no_pass_is_refused():
    with pytest.raises(ParameterError, match="at least one pass"):
        MCDropout(passes=0)


@pytest.mark.shared
def test_golden_entropy(shared):
    golden = np.load(shared / "golden" / "cood_nac_cnn.npz")
    batch = fiood.FeatureSet(columns={SAMPLES: golden["mcd_probs"].transpose(1, 0, 2)})
    np.testing.assert_allclose(MCDropout().score(batch), golden["score_mcd_entropy"], atol=2e-7)


def test_it_conforms():
    check_detector("mc-dropout")
