import numpy as np
import pytest
import torch
from fiood_detector_odin import ODIN, OdinConfidence
from torch import nn
from torch.nn.functional import cross_entropy, softmax
from torchvision.transforms import Compose, Resize, ToTensor

import fiood_core as fiood
from fiood_core.column import ImageBatch
from fiood_core.errors import ParameterError
from fiood_core.testing import check_detector


def pixels(side):
    return Compose([Resize((side, side)), ToTensor()])


@pytest.fixture
def backbone():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 5))
    return fiood.from_module(network, transform=pixels(8), name="tiny")


def confidence(backbone, images, **parameters):
    (column,) = ODIN(**parameters).columns
    return column.compute(ImageBatch(images, images, images), backbone, backbone.head)


@pytest.mark.parametrize("preset", ["cood", "original"])
def test_it_conforms(preset):
    check_detector(ODIN, parameters=ODIN.presets[preset])


def test_coods_form_takes_softmax_twice_and_zero_has_a_positive_sign(backbone):
    images = torch.randn(4, 3, 8, 8)
    moving = images.clone().requires_grad_()
    logits = backbone.module(moving)
    cross_entropy(softmax(logits, dim=1), logits.argmax(dim=1)).backward()
    sign = torch.ones_like(images)
    sign[moving.grad < 0] = -1
    std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    expected = softmax(backbone.module(images - 0.1 * sign / std) / 2, dim=1).amax(dim=1)
    torch.testing.assert_close(confidence(backbone, images, magnitude=0.1), expected.detach())


def test_the_textbook_step_raises_the_confidence(backbone):
    images = torch.randn(8, 3, 8, 8)
    parameters = {"loss": "textbook", "temperature": 1.0, "std": (1.0, 1.0, 1.0)}
    still = confidence(backbone, images, magnitude=0.0, **parameters)
    moved = confidence(backbone, images, magnitude=1e-3, **parameters)
    assert (moved > still).all()


def test_the_key_names_every_parameter():
    keys = {ODIN(**p).columns[0].key for p in ({}, {"temperature": 3}, {"magnitude": 0.1}, {"std": (1.0, 1.0, 1.0)})}
    assert len(keys) == 4


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"magnitude": -1.0}, {"std": (1.0, 1.0)}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError, match="odin"):
        ODIN(**wrong)


@pytest.mark.shared
@pytest.mark.parametrize(("key", "std"), [("score_odin", None), ("score_odin_std", "textbook")])
def test_golden_confidence(shared, key, std):
    golden = np.load(shared / "golden" / "cood_nac_cnn.npz")
    backbone = golden_backbone(golden)
    loss = "softmax-twice" if std is None else "textbook"
    column = OdinConfidence(2.0, 1e-5, loss, (0.229, 0.224, 0.225))
    images = torch.from_numpy(golden["X"])
    found = column.compute(ImageBatch(images, images, images), backbone, backbone.head)
    np.testing.assert_allclose(found.numpy(), golden[key], atol=2e-6)


def golden_backbone(golden):
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    names = {"0": "conv1", "2": "conv2", "6": "fc"}
    network.load_state_dict(
        {f"{i}.{p}": torch.from_numpy(golden[f"w_{n}_{p}"]) for i, n in names.items() for p in ("weight", "bias")}
    )
    return fiood.from_module(network, transform=pixels(16), name="golden")
