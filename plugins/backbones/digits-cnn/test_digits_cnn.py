import time

import fiood_backbone_digits_cnn as plugin
import numpy as np
import pytest
import torch
from fiood_backbone_digits_cnn import DigitsCNN
from fiood_benchmark_digits import DigitsBenchmark
from fiood_dataset_digits import Digits

import fiood_core as fiood
from fiood_core import settings
from fiood_core.backbone import state_digest
from fiood_core.errors import InputError
from fiood_core.testing import check_backbone


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A cache of its own, with the trained weights in it after the first load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIOOD_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def backbone(home):
    backbone = DigitsCNN()
    backbone.load()
    return backbone


def outputs(backbone, dataset):
    view = dataset.view()
    batch = torch.stack([backbone.transform(dataset.open(image_id)) for image_id in view.ids])
    with torch.no_grad():
        return view, backbone.forward(batch)


def msp(backbone, dataset):
    return outputs(backbone, dataset)[1].logits.double().softmax(dim=1).amax(dim=1).numpy()


def test_conformance(backbone):
    check_backbone(DigitsCNN)


def test_accuracy_is_as_the_card_says(backbone):
    view, (features, logits) = outputs(backbone, Digits())
    labels = np.array([target for (target,) in view.targets])
    accuracy = float((logits.argmax(dim=1).numpy() == labels).mean())
    assert accuracy >= 0.99
    assert accuracy == pytest.approx(backbone.card.expected_top1["digits"], abs=0.005)
    assert features.shape == (543, 64)
    assert sum(p.numel() for p in backbone.module.parameters()) == backbone.card.parameters


def test_msp_tells_unseen_digits_patches_and_noise_apart(backbone):
    benchmark = DigitsBenchmark()
    inside = msp(backbone, benchmark.id_test)
    auroc = {name: fiood.evaluate(inside, msp(backbone, ood.dataset)).auroc for name, ood in benchmark.ood.items()}
    assert min(auroc.values()) >= 0.93, auroc


@pytest.mark.slow
def test_training_again_gives_the_same_bits_and_leaves_the_process_as_it_was(backbone):
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    with torch.inference_mode():
        again = plugin._train()
    assert state_digest(again) == state_digest(backbone.module)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), random)


def test_kept_weights_are_read_not_trained_again(backbone, monkeypatch):
    monkeypatch.setattr(plugin, "_train", None)
    start = time.perf_counter()
    again = DigitsCNN()
    again.load()
    assert state_digest(again.module) == state_digest(backbone.module)
    assert time.perf_counter() - start < 1
    assert not any(p.requires_grad for p in again.module.parameters())


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
def test_damaged_weights_are_noticed_and_trained_again(backbone, monkeypatch, damage):
    (place,) = (settings.home() / "weights").iterdir()
    content = place.read_bytes()
    damaged = {"truncated": content[:-100], "altered": content[:-4] + b"\0\0\0\0", "empty": b""}[damage]
    place.write_bytes(damaged)
    trained = []
    monkeypatch.setattr(plugin, "_train", lambda: trained.append(1) or backbone.module)
    DigitsCNN().load()
    assert trained
    assert place.read_bytes() == content
    assert list(place.parent.iterdir()) == [place]


def test_the_digest_needs_no_training_and_follows_the_recipe(home, monkeypatch):
    monkeypatch.setattr(plugin, "_train", None)
    before = DigitsCNN().weights_digest
    monkeypatch.setattr(plugin, "RECIPE", "another")
    assert DigitsCNN().weights_digest != before


def test_an_unloaded_backbone_says_what_to_do():
    with pytest.raises(InputError, match=r"call load\(\)"):
        _ = DigitsCNN().head
