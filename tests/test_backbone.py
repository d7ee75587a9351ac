"""A user's own model becomes a backbone: its head is found, and features are exactly what enters it."""

from collections import OrderedDict

import pytest
import torch
import torchvision
from torch import nn
from torchvision import transforms

import fiood_core as fiood
from fiood_core.errors import InputError
from fiood_core.testing import check_backbone


def small(size=32):
    return transforms.Compose([transforms.Resize((size, size)), transforms.ToTensor()])


def images(n=3, size=32):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("resnet18", "fc"),
        ("mobilenet_v2", "classifier.1"),
        ("mobilenet_v3_small", "classifier.3"),
        ("shufflenet_v2_x0_5", "fc"),
        ("efficientnet_b0", "classifier.1"),
        ("regnet_y_400mf", "fc"),
        pytest.param("densenet121", "classifier", marks=pytest.mark.slow),
        pytest.param("convnext_tiny", "classifier.2", marks=pytest.mark.slow),
        pytest.param("vit_b_16", "heads.head", marks=pytest.mark.slow),
        pytest.param("swin_t", "head", marks=pytest.mark.slow),
        pytest.param("vgg11", "classifier.6", marks=pytest.mark.slow),
        pytest.param("googlenet", "fc", marks=pytest.mark.slow),
    ],
)
def test_torchvision_models_with_any_number_of_classes(name, head):
    options = {"init_weights": False} if name == "googlenet" else {}
    size = 224 if name == "vit_b_16" else 64
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, num_classes=7, **options)
    backbone = fiood.from_module(model, small(size))
    assert torch.equal(backbone.head.weight, model.get_submodule(head).weight)
    assert backbone.num_classes == 7
    assert not model.training
    with torch.no_grad():
        features, logits = backbone.forward(images(2, size))
        expected = model(images(2, size))
    assert features.shape == (2, backbone.head.dim)
    torch.testing.assert_close(logits, expected, rtol=0, atol=0)
    torch.testing.assert_close(backbone.head(features), logits)


def test_features_are_exactly_what_enters_the_head():
    body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5), nn.ReLU())
    model = nn.Sequential(OrderedDict(body=body, drop=nn.Dropout(0.5), head=nn.Linear(5, 2)))
    features = fiood.from_module(model, small(8)).forward(images(size=8)).features
    torch.testing.assert_close(features, body(images(size=8)), rtol=0, atol=0)


def test_a_1x1_convolution_is_a_head():
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1), nn.Flatten())
    backbone = fiood.from_module(model, small())
    features, logits = backbone.forward(images())
    assert (features.shape, logits.shape) == ((3, 6), (3, 4))
    torch.testing.assert_close(backbone.head(features), logits)


class TwoHeaded(nn.Module):
    """The head that counts is registered before one that does not."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5), nn.GELU())
        self.head = nn.Linear(5, 3)
        self.projection = nn.Linear(5, 16)

    def forward(self, x):
        x = self.body(x)
        self.projection(x)
        return self.head(x)


def test_of_several_linear_layers_the_one_that_gives_the_output_is_the_head():
    assert fiood.from_module(TwoHeaded(), small(8)).num_classes == 3


def test_another_layer_cannot_be_named_head():
    with pytest.raises(InputError, match=r"'projection' is not the output.*'head'"):
        fiood.from_module(TwoHeaded(), small(8), head="projection")
    with pytest.raises(InputError, match="no submodule 'fc'"):
        fiood.from_module(TwoHeaded(), small(8), head="fc")


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(192, 3), nn.Softmax(dim=1)),
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Sequential(nn.Conv2d(3, 4, 1)),
        nn.Flatten(),
    ],
)
def test_a_model_that_does_not_end_in_a_linear_map_is_refused(model):
    with pytest.raises(InputError, match="does not end in"):
        fiood.from_module(model, small(8))


def test_a_model_that_does_not_fit_its_transform_is_refused():
    with pytest.raises(InputError, match=r"does not run on a transformed picture: RuntimeError"):
        fiood.from_module(nn.Sequential(nn.Flatten(), nn.Linear(10, 3)), small(8))


def test_a_model_that_gives_no_tensor_is_refused():
    class Pair(nn.Module):
        def forward(self, x):
            return x, x

    with pytest.raises(InputError, match="gives a tuple"):
        fiood.from_module(Pair(), small(8))


def tiny(activation=nn.ReLU, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 5), activation(), nn.Linear(5, 3))


def test_the_key_follows_weights_architecture_transform_and_arithmetic():
    transform = small(8)
    key = fiood.from_module(tiny(), transform).key()
    assert fiood.from_module(tiny(), small(8)).key() == key
    assert fiood.from_module(tiny(seed=1), transform).key() != key
    assert fiood.from_module(tiny(nn.GELU), transform).key() != key
    assert fiood.from_module(tiny(), transforms.Compose([*transform.transforms, lambda x: x * 2])).key() != key
    assert fiood.from_module(tiny(), transform).key(autocast="bfloat16") != key


def test_head_and_key_follow_further_training():
    model = tiny()
    backbone = fiood.from_module(model, small(8))
    key = backbone.key()
    with torch.no_grad():
        model[3].weight += 1
    assert backbone.key() != key
    features, logits = backbone.forward(images(size=8))
    torch.testing.assert_close(backbone.head(features), logits)


def test_a_module_passes_the_conformance_kit():
    check_backbone(fiood.from_module(tiny(), small(8), name="tiny", card=fiood.Card(title="Tiny")))
