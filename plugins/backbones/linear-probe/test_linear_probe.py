"""The probe is trained on the digits network's stored features, interrupted, resumed, kept and evaluated."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import fiood_backbone_linear_probe as plugin
import numpy as np
import pytest
import timm
import torch
from fiood_backbone_digits_cnn import DigitsCNN
from fiood_backbone_linear_probe import PRESETS, LinearProbe, Training
from fiood_dataset_digits import Digits
from fiood_dataset_folder import Folder
from PIL import Image

import fiood_core as fiood
from fiood_core import results, sealed, settings
from fiood_core.errors import InputError, ParameterError
from fiood_core.extract import ExtractSettings, extract
from fiood_core.store import FeatureStore
from fiood_core.testing import check_backbone

SETTINGS = ExtractSettings(device="cpu", progress=False)
TRAIN = "digits(split=train)"


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A cache that holds the digits network, so that no test trains it again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIOOD_HOME", str(tmp_path_factory.mktemp("weights")))
        DigitsCNN().load()
        yield settings.home() / "weights"


@pytest.fixture(autouse=True)
def home(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "weights").symlink_to(weights)


def probe(**parameters):
    return fiood.backbone("linear-probe", **{"backbone": "digits-cnn", "train": TRAIN, **parameters})


def accuracy(backbone):
    view = Digits().view()
    batch = torch.stack([backbone.transform(Digits().open(name)) for name in view.ids])
    with torch.no_grad():
        predicted = backbone.forward(batch).logits.argmax(dim=1).numpy()
    return float((predicted == np.array([target for (target,) in view.targets])).mean())


class Counting(DigitsCNN):
    """The digits network, counting the pictures that go through it."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, images):
        self.seen += len(images)
        return super().forward(images)


def test_it_conforms():
    check_backbone(probe)


def test_it_is_as_accurate_as_the_network_s_own_head():
    own = DigitsCNN()
    own.load()
    for parameters in ({}, {"epochs": 60, "seed": 1, "batch_size": 50}):
        trained = probe(**parameters)
        trained.load()
        assert abs(accuracy(trained) - accuracy(own)) <= 0.01
        assert not torch.equal(trained.head.weight, own.head.weight)


def test_training_pictures_go_through_the_backbone_once():
    base, store = Counting(), FeatureStore()
    trained = LinearProbe(base, Digits("train"), epochs=1)
    found = extract(trained, Digits("train"), store, SETTINGS)
    blank = 1  # to learn how wide the features are
    assert base.seen == len(Digits("train").view()) + blank
    assert found.computed == 0
    other = LinearProbe(base, Digits("train"), epochs=1, seed=1)
    extract(other, Digits("train"), store, SETTINGS)
    alone = extract(base, Digits("train"), store, SETTINGS)
    assert base.seen == len(Digits("train").view()) + blank
    assert alone.computed == 0
    assert alone.features.head.digest not in {trained.head.digest, other.head.digest}
    extract(LinearProbe(base, Digits("train"), epochs=1), Digits(), store, SETTINGS)
    assert base.seen == len(Digits("train").view()) + blank + len(Digits().view())


def test_what_is_stored_is_used_without_the_backbone_or_the_training(monkeypatch):
    store = FeatureStore()
    first = extract(probe(epochs=1), Digits(), store, SETTINGS)
    monkeypatch.setattr(DigitsCNN, "load", None)
    monkeypatch.setattr(Training, "run", None)
    again = extract(probe(epochs=1), Digits(), store, SETTINGS)
    assert again.features.head.digest == first.features.head.digest
    for path in (settings.home() / "probes").iterdir():
        path.unlink()
    (lost,) = {extract(probe(epochs=1), Digits("train"), store, SETTINGS).features.head.digest}
    assert lost == first.features.head.digest


# -- interruptions -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unbroken(weights, tmp_path_factory):
    """The head that training without an interruption gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIOOD_HOME", str(tmp_path_factory.mktemp("unbroken")))
        (settings.home() / "weights").symlink_to(weights)
        trained = probe(epochs=6, batch_size=100)
        trained.load()
    return trained.head.digest


@pytest.mark.parametrize("steps", [1, 6, 9, 20, 36])
def test_interrupted_and_resumed_it_gives_the_same_weights(unbroken, monkeypatch, steps):
    done = []
    original = plugin._State.step

    def step(self, *arguments):
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(1)
        original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(plugin._State, "step", step)
        if steps < 36:  # six epochs of six batches
            with pytest.raises(KeyboardInterrupt):
                probe(epochs=6, batch_size=100).load()
        else:
            patch.setattr(plugin.sealed, "write", interrupted_when_done(plugin.sealed.write))
            with pytest.raises(KeyboardInterrupt):
                probe(epochs=6, batch_size=100).load()
    with monkeypatch.context() as patch:
        patch.setattr(plugin._State, "step", lambda self, *a: done.append(1) or original(self, *a))
        resumed = probe(epochs=6, batch_size=100)
        resumed.load()
    assert resumed.head.digest == unbroken
    assert len(done) == steps + 36 - steps // 6 * 6  # only the unfinished epoch was done again
    assert [path.name.count(".part.") for path in (settings.home() / "probes").iterdir()] == [0]


def interrupted_when_done(write):
    def wrapper(root, place, tensors, metadata):
        if "provenance" in metadata:
            raise KeyboardInterrupt
        return write(root, place, tensors, metadata)

    return wrapper


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_killed_and_resumed_it_gives_the_same_weights(unbroken):
    program = (
        "import os, signal, fiood_backbone_linear_probe as plugin, fiood_core as fiood\n"
        "keep = plugin._State.keep\n"
        "def die(self, place, epochs):\n"
        "    keep(self, place, epochs)\n"
        "    epochs == 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "plugin._State.keep = die\n"
        f"fiood.backbone('linear-probe', backbone='digits-cnn', train={TRAIN!r}, epochs=6, batch_size=100).load()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], timeout=300, check=False)
    assert ran.returncode == -signal.SIGKILL
    resumed = probe(epochs=6, batch_size=100)
    resumed.load()
    assert resumed.head.digest == unbroken


@pytest.mark.parametrize("damage", [b"", b"short"])
def test_a_damaged_file_is_made_again(unbroken, damage):
    probe(epochs=6, batch_size=100).load()
    (place,) = (settings.home() / "probes").iterdir()
    whole = place.read_bytes()
    place.write_bytes(damage or whole[:-8] + bytes(8))
    again = probe(epochs=6, batch_size=100)
    again.prepare(FeatureStore(settings.home() / "another"), SETTINGS)
    assert again.head.digest == unbroken
    assert place.read_bytes() == whole


# -- keys and provenance -----------------------------------------------------------------------------------------------


def test_the_digest_needs_no_training_and_follows_everything_that_decides_the_weights(monkeypatch):
    monkeypatch.setattr(Training, "run", None)
    before = probe().weights_digest
    assert probe().weights_digest == before
    others = [
        probe(seed=1),
        probe(epochs=21),
        probe(learning_rate=0.01),
        probe(batch_size=255),
        probe(train="digits"),
    ]
    assert len({before, *(other.weights_digest for other in others)}) == 6
    assert before != DigitsCNN().weights_digest
    assert probe().features_key() == DigitsCNN().key()
    assert probe().key(autocast="bfloat16") != probe().key()


def test_it_is_kept_with_its_provenance():
    trained = probe(epochs=3)
    trained.load()
    found = trained.provenance
    assert found["backbone"] == "Digits CNN"
    assert found["features_key"] == DigitsCNN().key()
    assert found["view"] == Digits("train").view().digest
    assert found["pictures"] == 540
    assert found["training"] == {"epochs": 3, "batch_size": 256, "learning_rate": 0.001, "seed": 0}
    assert found["versions"]["torch"] == torch.__version__
    assert 0.5 < found["top1"] <= 1
    (place,) = (settings.home() / "probes").iterdir()
    kept = sealed.read(place.parent, place.name)
    assert torch.equal(kept.tensor("weight"), trained.head.weight)


def test_a_changed_training_picture_makes_another_probe(tmp_path):
    random = np.random.default_rng(0)
    for number in range(6):
        Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    lines = "".join(f"{number}.png,{number % 3}\n" for number in range(6))
    (tmp_path / "labels.csv").write_text(f"path,label\n{lines}")
    before = probe(train=f"folder:{tmp_path / 'labels.csv'}").weights_digest
    Image.fromarray(random.integers(0, 256, (8, 8), dtype=np.uint8)).save(tmp_path / "3.png")
    os.utime(tmp_path / "3.png", (1, 1))
    assert probe(train=f"folder:{tmp_path / 'labels.csv'}").weights_digest != before


def test_probes_of_other_precision_are_trained_on_features_of_that_precision():
    trained = probe(epochs=3)
    half = extract(trained, Digits("train"), FeatureStore(), replace(SETTINGS, autocast="bfloat16"))
    half_head = trained.head.digest
    full = extract(trained, Digits("train"), FeatureStore(), SETTINGS)
    assert half.computed == full.computed == 0
    assert full.features.head.digest == trained.head.digest != half_head
    assert half.features.head.digest == half_head


# -- mathematics -------------------------------------------------------------------------------------------------------


def run(training, features, labels, classes=3):
    return training.run(features, labels, classes, torch.device("cpu"), "x.part.safetensors", False)


def test_it_finds_the_minimum_of_the_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(300, 4, generator=generator) * torch.tensor([1.0, 50.0, 0.01, 1.0]) + 7
    labels = (features[:, 0] + torch.randn(300, generator=generator) > 7).long()
    found = run(Training(40, 30, 0.05, 0), features, labels, 2)
    sklearn = pytest.importorskip("sklearn.linear_model")
    scaled = (features - features.mean(dim=0)) / features.std(dim=0, correction=0)
    best = sklearn.LogisticRegression(C=1e6, tol=1e-8).fit(scaled, labels)
    difference = (found.weight[1] - found.weight[0]) * features.std(dim=0, correction=0)
    np.testing.assert_allclose(difference, best.coef_[0], atol=0.02)
    predicted = (features @ found.weight.T + found.bias).argmax(dim=1)
    assert found.top1 == pytest.approx(float((predicted == labels).float().mean()), abs=0.01)


def test_a_constant_feature_gets_no_weight():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 3, generator=generator)
    features[:, 1] = 1 / 3
    found = run(Training(5, 20, 0.01, 0), features, torch.arange(60) % 3)
    assert torch.equal(found.weight[:, 1], torch.zeros(3))


def test_an_epoch_sees_every_picture_once_in_an_order_of_its_own():
    training = Training(2, 7, 0.1, 3)
    first, second = (torch.cat(list(training.order(epoch, 30))) for epoch in (0, 1))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(30))
    assert not torch.equal(first, second)
    assert torch.equal(torch.cat(list(training.order(1, 30))), second)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"backbone": None}, "needs backbone= and train="),
        ({"epochs": 0}, "at least one epoch"),
        ({"learning_rate": -1.0}, "positive batch size and learning rate"),
    ],
)
def test_wrong_parameters_are_refused(parameters, message):
    with pytest.raises(ParameterError, match=message):
        probe(**parameters)
    with pytest.raises(ParameterError, match="have DINOv2-g/14, DINOv3-7B"):
        fiood.backbone("linear-probe", preset="DINOv4")


def test_pictures_without_a_class_are_refused(tmp_path):
    for number in range(2):
        Image.new("L", (8, 8), 100 * number).save(tmp_path / f"{number}.png")
    unlabelled = LinearProbe(DigitsCNN(), Folder(tmp_path))
    with pytest.raises(InputError, match="learns from pictures with one class each"):
        unlabelled.load()


def test_all_that_is_missing_is_told_at_once(monkeypatch):
    monkeypatch.setenv("FIOOD_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(settings.home() / "hub"))
    with pytest.raises(InputError, match=r"weights of vit_giant_patch14_dinov2.*not on this machine.*ILSVRC2012_img_"):
        fiood.backbone("linear-probe", preset="DINOv2-g/14").key()


# -- presets and a whole run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_paper_s_backbone_on_the_class_token(name):
    made = fiood.backbone("linear-probe", preset=name)
    with torch.device("meta"):
        pool = {} if made.base.global_pool is None else {"global_pool": made.base.global_pool}
        network = timm.create_model(made.base.model, **pool)
    assert network.global_pool == "token"
    assert network.num_classes == 0
    assert sum(p.numel() for p in network.parameters()) + (network.num_features + 1) * 1000 == made.card.parameters
    assert made.card.title == name
    assert made.card.pretraining.startswith("SSL (LVD-")
    assert made.num_classes == len(made.class_wnids) == 1000
    assert made.card.expected_top1 == {}


def test_a_run_trains_the_probe_and_scores_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("fiood_core.tasks.SHOW_PROGRESS", False)
    spec = f"linear-probe(backbone=digits-cnn, train='{TRAIN}', epochs=60)"
    arguments = ["--benchmark", "digits", "--backbone", spec, "--detector", "msp,mahalanobis", "--expect-top1", "0.998"]
    arguments += ["--device", "cpu", "--output", str(tmp_path / "out"), "--store", str(tmp_path / "store")]
    command = import_module("fiood_core.cli._run").command
    from click.testing import CliRunner

    ran = CliRunner().invoke(command, arguments)
    assert ran.exit_code == 0, ran.output
    found = results.load(tmp_path / "out").rows
    assert {row["status"] for row in found} == {"ok"}
    assert min(row["auroc"] for row in found if row["detector"].startswith("msp")) > 0.9
    assert not (settings.home() / "store").exists()  # the run's own store was used
