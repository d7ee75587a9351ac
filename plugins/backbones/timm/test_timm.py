"""timm's real building and loading code on small random models of each family, from files; nothing is fetched."""

import json
import os
import subprocess
import sys
from importlib import import_module

import fiood_backbone_timm as plugin
import numpy as np
import pytest
import timm
import torch
from click.testing import CliRunner
from fiood_backbone_timm import PRESETS, Timm
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models import get_pretrained_cfg

import fiood_core as fiood
from fiood_core import imagenet
from fiood_core.errors import InputError, ParameterError
from fiood_core.testing import check_backbone

CLASSES = 5
TRANSFORMER = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2}
FAMILIES = {
    "ResNet": ("test_resnet", {}),
    "SwinV2": (
        "swinv2_tiny_window8_256",
        {"img_size": 64, "window_size": 2, "embed_dim": 16, "depths": [1, 1, 2, 1], "num_heads": [1, 1, 2, 2]},
    ),
    "ConvNeXt": ("convnext_atto", {"depths": [1, 1, 2, 1], "dims": [8, 16, 24, 32]}),
    "ConvNeXt V2": ("convnextv2_atto", {"depths": [1, 1, 2, 1], "dims": [8, 16, 24, 32]}),
    "ViT": ("vit_tiny_patch16_224", TRANSFORMER),
    "DeiT III": ("deit3_small_patch16_224", TRANSFORMER),
    "EVA02": ("eva02_tiny_patch14_224", {**TRANSFORMER, "img_size": 28}),
    "XCiT": ("xcit_nano_12_p16_224", {"embed_dim": 32, "depth": 2, "num_heads": 2, "img_size": 64}),
    "EfficientNet": ("test_efficientnet", {}),
    "BiT": ("resnetv2_50x1_bit", {"channels": [128, 128, 128, 128], "stem_chs": 32}),
    "DINOv2": ("vit_small_patch14_dinov2", {**TRANSFORMER, "img_size": 28}),
    "DINOv3": ("vit_small_patch16_dinov3", TRANSFORMER),
}
NO_CLASSIFIER = ("DINOv2", "DINOv3")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """No network, an empty cache of the hub, and no memory of other tests' files."""
    monkeypatch.setenv("FIOOD_OFFLINE", "1")
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(plugin, "_digests", {})


def network(family, classes=CLASSES):
    """A small model with random values in every weight, timm's zeros included."""
    architecture, arguments = FAMILIES[family]
    made = timm.create_model(architecture, num_classes=classes, **arguments).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return made


def saved(folder, family, classes=CLASSES, weights="model.safetensors"):
    """A folder with a configuration and weights, as timm's users have it, and its network."""
    made = network(family, classes)
    architecture, arguments = FAMILIES[family]
    size = arguments.get("img_size", 64)
    folder.mkdir(exist_ok=True)
    inner = {"input_size": [3, size, size], "mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 1.0}
    inner |= {key: made.pretrained_cfg[key] for key in ("classifier", "first_conv", "fixed_input_size")}
    whole = {"architecture": architecture, "num_classes": classes, "model_args": arguments, "pretrained_cfg": inner}
    (folder / "config.json").write_text(json.dumps(whole))
    if weights.endswith(".safetensors"):
        save_file({name: value.contiguous() for name, value in made.state_dict().items()}, folder / weights)
    else:
        torch.save(made.state_dict(), folder / weights)
    return made


def pictures(n=3, size=(50, 40)):
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)) for _ in range(n)]


def batch(backbone, n=3):
    return torch.stack([backbone.transform(picture) for picture in pictures(n)])


@pytest.fixture(params=[name for name in FAMILIES if name not in NO_CLASSIFIER])
def family(request, tmp_path):
    made = saved(tmp_path / "model", request.param)
    backbone = Timm(str(tmp_path / "model"))
    backbone.load()
    return backbone, made


@torch.no_grad()
def test_head_of_the_features_is_what_the_network_gives(family):
    backbone, made = family
    images = batch(backbone)
    expected = made(images)
    features, logits = backbone.forward(images)
    assert expected.std(dim=0).min() > 1e-4  # pictures differ, so agreement says something
    assert torch.equal(logits, expected)
    assert features.shape == (3, made.num_features)
    assert (backbone.head(features) - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    assert backbone.num_classes == backbone.head.num_rows == CLASSES


@pytest.mark.parametrize("family_name", ["ResNet", "DeiT III", "BiT"])
def test_it_conforms(family_name, tmp_path):
    saved(tmp_path / "model", family_name)
    check_backbone(lambda: Timm(str(tmp_path / "model")))


def test_features_are_the_class_token_where_it_is_asked_for(tmp_path):
    made = saved(tmp_path / "model", "DINOv3", classes=0)
    token = Timm(str(tmp_path / "model"), global_pool="token")
    mean = Timm(str(tmp_path / "model"))
    images = batch(token)
    with torch.no_grad():
        normed = made.forward_features(images)
        token.load()
        mean.load()
        assert torch.equal(token.forward(images).features, normed[:, 0])
        averaged = normed[:, made.num_prefix_tokens :].mean(dim=1)
    assert not torch.allclose(mean.forward(images).features, token.forward(images).features, atol=0.1)
    assert averaged.shape == token.forward(images).features.shape
    assert token.weights_digest != mean.weights_digest


def test_a_network_without_a_classifier_says_how_to_get_one(tmp_path):
    saved(tmp_path / "model", "DINOv2", classes=0)
    backbone = Timm(str(tmp_path / "model"))
    backbone.load()
    assert backbone.num_classes is None
    with pytest.raises(InputError, match=r"no linear classifier.*linear-probe\(backbone="):
        _ = backbone.head


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("wrapped", [False, True])
@torch.no_grad()
def test_a_file_or_folder_works_wherever_a_name_does(tmp_path, weights, wrapped):
    made = saved(tmp_path / "model", "ResNet", classes=1000, weights=weights)
    file = tmp_path / "model" / weights
    if wrapped and weights.endswith("bin"):
        torch.save({"epoch": 3, "model": {f"module.{k}": v for k, v in made.state_dict().items()}}, file)
    places = [
        Timm(str(tmp_path / "model")),
        Timm("test_resnet.r160_in1k", str(tmp_path / "model")),
        Timm("test_resnet.r160_in1k", checkpoint=str(file)),
    ]
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    for backbone in places:
        backbone.load()
        assert torch.equal(backbone.forward(images).logits, made(images))
        assert not any(parameter.requires_grad for parameter in backbone.module.parameters())
    assert places[0].card.resolution == 64  # its own configuration, not the registered one
    assert places[1].card.resolution == 64
    assert places[2].card.resolution == 160
    assert len({backbone.weights_digest for backbone in places}) == 1


def test_a_folder_that_timm_saved_is_read(tmp_path):
    made = timm.create_model("test_vit", num_classes=7).eval()
    timm.models.save_for_hf(made, tmp_path / "saved", safe_serialization=True)
    backbone = Timm(str(tmp_path / "saved"))
    backbone.load()
    images = batch(backbone)
    with torch.no_grad():
        assert torch.equal(backbone.forward(images).logits, made(images))
    expected = timm.data.create_transform(**timm.data.resolve_model_data_config(made))
    assert torch.equal(backbone.transform(pictures(1)[0]), expected(pictures(1)[0]))


def test_averaged_weights_come_before_those_of_the_last_step(tmp_path):
    made = saved(tmp_path / "model", "ResNet", weights="pytorch_model.bin")
    state = made.state_dict()
    zeros = {name: torch.zeros_like(value) for name, value in state.items()}
    torch.save({"state_dict": zeros, "state_dict_ema": state}, tmp_path / "model" / "pytorch_model.bin")
    backbone = Timm(str(tmp_path / "model"))
    backbone.load()
    assert torch.equal(backbone.head.weight, made.get_classifier().weight)


def test_the_digest_is_the_file_s_and_needs_no_loading(tmp_path, monkeypatch):
    saved(tmp_path / "model", "ResNet")
    file = tmp_path / "model" / "model.safetensors"
    monkeypatch.setattr(timm, "create_model", None)
    before = Timm(str(tmp_path / "model")).weights_digest
    save_file({name: value + 1 for name, value in load_file(file).items()}, file)
    assert Timm(str(tmp_path / "model")).weights_digest != before


# -- what is refused ---------------------------------------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return os.system, ("touch run",)


def test_a_pickled_checkpoint_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "model", "ResNet", weights="pytorch_model.bin")
    torch.save({"state_dict": Evil()}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(InputError, match="could not be loaded as timm's test_resnet"):
        Timm(str(tmp_path / "model")).load()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", ["missing", "another model's", "truncated"])
def test_tensors_that_are_not_the_model_s_are_refused(tmp_path, change):
    made = saved(tmp_path / "model", "ResNet")
    file = tmp_path / "model" / "model.safetensors"
    if change == "missing":
        save_file({k: v.contiguous() for k, v in made.state_dict().items() if not k.startswith("fc")}, file)
    elif change == "another model's":
        saved(tmp_path / "other", "ViT")
        file.write_bytes((tmp_path / "other" / "model.safetensors").read_bytes())
    else:
        file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(InputError, match="could not be loaded as timm's test_resnet"):
        Timm(str(tmp_path / "model")).load()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("no JSON", "JSONDecodeError"),
        ('{"architecture": "test_resnet"}', "input_size"),
        ('["architecture"]', "AttributeError"),
        ('{"architecture": "test_resnet", "input_size": [3, 9, 9], "model_args": {"checkpoint_path": "x"}}', "weights"),
        (" " * (plugin.MAX_CONFIG + 1), "larger"),
    ],
)
def test_a_configuration_is_distrusted(tmp_path, content, reason):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(content)
    with pytest.raises(InputError, match=f"no configuration of a timm model.*{reason}"):
        _ = Timm(str(tmp_path / "model")).transform


def test_a_configuration_names_no_other_file_as_weights(tmp_path):
    saved(tmp_path / "model", "ResNet")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["pretrained_cfg"] |= {"file": "elsewhere", "url": "http://localhost:1/x", "custom_load": True}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    Timm(str(tmp_path / "model")).load()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda place: Timm("resnet50.a1_in1k"), r"not on this machine.*timm/resnet50.a1_in1k/resolve/main/model.safe"),
        (lambda place: Timm("resnet50.a1_in1k", "gone.pth"), "there is no checkpoint file gone.pth"),
        (lambda place: Timm("resnet50.a1_in1k", "gone.ckpt"), "no checkpoint of plain tensors"),
        (lambda place: Timm("resnet50.a1_in1k", str(place)), "holds no weights; they are called model.safetensors"),
        (lambda place: Timm.configured("BiT-s"), r"must be given: download https://storage.*BiT-S-R101x1.npz.*BiT-m's"),
    ],
)
def test_what_is_not_here_is_named_with_the_next_step(tmp_path, make, message):
    backbone = make(tmp_path)
    with pytest.raises(InputError, match=message):
        backbone.key()
    with pytest.raises(InputError, match=message):
        backbone.load()


def test_a_folder_of_another_model_is_refused(tmp_path):
    saved(tmp_path / "model", "ViT")
    with pytest.raises(InputError, match="holds a vit_tiny_patch16_224, not a test_resnet"):
        _ = Timm("test_resnet.r160_in1k", str(tmp_path / "model")).transform


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "needs a model"),
        ({"model": "resnet50.a1_in2k"}, "no model 'resnet50.a1_in2k'.*did you mean resnet50.a1_in1k"),
        ({"preset": "vit-b-384-L2b"}, "no preset 'vit-b-384-L2b'; have.*ViT-B-384-l2b"),
        ({"preset": "ResNet50", "model": "resnet18.a1_in1k"}, "says the model"),
        ({"preset": "ResNet50", "global_pool": "max"}, "says the model"),
    ],
)
def test_a_wrong_name_is_refused_with_near_ones(parameters, message):
    with pytest.raises(ParameterError, match=message):
        fiood.backbone("timm", **parameters).key()


def test_a_cached_file_of_the_hub_is_found_without_network(tmp_path):
    saved(tmp_path / "model", "ResNet", classes=1000)
    content = (tmp_path / "model" / "model.safetensors").read_bytes()
    sha = plugin._file_sha256(tmp_path / "model" / "model.safetensors")
    place = tmp_path / "hub" / "models--timm--test_resnet.r160_in1k"
    for folder in ("blobs", "refs", "snapshots/0123"):
        (place / folder).mkdir(parents=True)
    (place / "refs" / "main").write_text("0123")
    (place / "blobs" / sha).write_bytes(content)
    (place / "snapshots" / "0123" / "model.safetensors").symlink_to(f"../../blobs/{sha}")
    program = (
        "from fiood_backbone_timm import Timm; b = Timm('test_resnet.r160_in1k'); b.load();"
        "print(b.checkpoint.name, b.head)"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1", "FIOOD_OFFLINE": ""}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout == "model.safetensors Head(1000 × 96)\n", ran.stderr
    environment["HF_HUB_CACHE"] = str(tmp_path / "empty")
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert "are not on this machine" in ran.stderr


# -- the presets -------------------------------------------------------------------------------------------------------


def test_the_presets_are_the_paper_s_thirty_less_two(request):
    lines = (request.config.rootpath / "benchmarks" / "reference" / "table_a8_supervised.csv").read_text().splitlines()
    listed = dict(line.split(",") for line in lines[1:])
    assert {name: preset.model for name, preset in PRESETS.items()} == {
        name: model for name, model in listed.items() if "linear probe" not in model
    }
    assert len(PRESETS) == 28


def test_no_two_presets_have_the_same_weights():
    configs = [get_pretrained_cfg(p.model) for p in PRESETS.values() if not p.local]
    tags = [p.local for p in PRESETS.values() if p.local] + [(c.architecture, c.tag) for c in configs]
    assert len(set(tags)) == 28
    assert all(get_pretrained_cfg(p.model).hf_hub_id == f"timm/{p.model}" for p in PRESETS.values() if not p.local)
    assert get_pretrained_cfg(PRESETS["BiT-s"].model).hf_hub_id == f"timm/{PRESETS['BiT-m'].model}"  # hence the file
    assert len({fiood.backbone("timm", preset=name).card.source for name in PRESETS}) == 28


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds_with_a_head_of_a_thousand_classes(name):
    known, backbone = PRESETS[name], fiood.backbone("timm", preset=name)
    with torch.device("meta"):
        made = timm.create_model(known.model)
    classifier = made.get_classifier()
    assert sum(parameter.numel() for parameter in made.parameters()) == known.parameters
    assert classifier.weight.flatten(1).shape == (1000, made.num_features)
    assert backbone.card.title == name
    assert backbone.card.resolution == made.pretrained_cfg["input_size"][-1]
    assert backbone.card.licence == made.pretrained_cfg["license"]
    assert known.twin == "" or PRESETS[known.twin].twin == name
    assert list(backbone.class_wnids) == list(imagenet.wnids())
    assert backbone.transform(pictures(1)[0]).shape == (3, known.pixels, known.pixels)


def test_accuracy_is_declared_only_where_it_was_taken_at_the_same_resolution():
    for name, known in PRESETS.items():
        config = get_pretrained_cfg(known.model)
        at_test_size = config.test_input_size not in (None, config.input_size)
        assert (known.top1 is None) == (at_test_size or bool(known.local)), name
        card = fiood.backbone("timm", preset=name).card
        assert card.expected_top1 == ({} if known.top1 is None else {"imagenet-1k": known.top1})


@pytest.mark.parametrize("order", [("BiT-m", "BiT-s"), ("BiT-s", "BiT-m")])
def test_one_file_is_not_taken_for_two_presets(tmp_path, order):
    file = tmp_path / "bit.safetensors"
    file.write_bytes(b"weights")
    first, second = (fiood.backbone("timm", preset=name, checkpoint=str(file)) for name in order)
    assert first.weights_digest
    with pytest.raises(InputError, match=f"given for {order[1]}, but holds {order[0]}'s weights"):
        _ = second.weights_digest
    assert fiood.backbone("timm", preset=order[0], checkpoint=str(file)).weights_digest


def test_a_file_that_the_cache_knows_as_another_preset_s_is_refused(tmp_path):
    place = tmp_path / "hub" / f"models--timm--{PRESETS['BiT-m'].model}"
    for folder in ("refs", "snapshots/0123"):
        (place / folder).mkdir(parents=True)
    (place / "refs" / "main").write_text("0123")
    kept = place / "snapshots" / "0123" / "model.safetensors"
    kept.write_bytes(b"weights")
    with pytest.raises(InputError, match="given for BiT-s, but holds BiT-m's weights"):
        _ = fiood.backbone("timm", preset="BiT-s", checkpoint=str(kept)).weights_digest


def arrays(network, prefix="resnet/"):
    """A BiT's tensors by the names, and in the layout, of Google's files."""

    def convolution(weight):
        return weight.detach().permute(2, 3, 1, 0).numpy()

    found = {
        "root_block/standardized_conv2d/kernel": convolution(network.stem.conv.weight),
        "group_norm/gamma": network.norm.weight.detach().numpy(),
        "group_norm/beta": network.norm.bias.detach().numpy(),
        "head/conv2d/kernel": convolution(network.head.fc.weight),
        "head/conv2d/bias": network.head.fc.bias.detach().numpy(),
    }
    for number, stage in enumerate(network.stages, start=1):
        for unit, block in enumerate(stage.blocks, start=1):
            place = f"block{number}/unit{unit:02d}"
            for letter, conv, norm in (
                ("a", block.conv1, block.norm1),
                ("b", block.conv2, block.norm2),
                ("c", block.conv3, block.norm3),
            ):
                found[f"{place}/{letter}/standardized_conv2d/kernel"] = convolution(conv.weight)
                found[f"{place}/{letter}/group_norm/gamma"] = norm.weight.detach().numpy()
                found[f"{place}/{letter}/group_norm/beta"] = norm.bias.detach().numpy()
            if block.downsample is not None:
                found[f"{place}/a/proj/standardized_conv2d/kernel"] = convolution(block.downsample.conv.weight)
    return {prefix + name: value for name, value in found.items()}


@pytest.mark.slow
def test_bit_s_is_read_from_google_s_file(tmp_path):
    made = timm.create_model("resnetv2_101x1_bit").eval()
    torch.nn.init.normal_(made.head.fc.weight, std=0.01)
    file = tmp_path / "BiT-S-R101x1.npz"
    np.savez(file, **arrays(made))
    backbone = fiood.backbone("timm", preset="BiT-s", checkpoint=str(file))
    backbone.load()
    images = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(backbone.forward(images).logits, made(images))
    fewer = arrays(made)
    fewer["resnet/head/conv2d/kernel"] = fewer["resnet/head/conv2d/kernel"][..., :999]
    np.savez(file, **fewer)
    with pytest.raises(InputError, match=r"lacks 2 tensors of the model \(head.fc.weight"):
        fiood.backbone("timm", preset="BiT-s", checkpoint=str(file)).load()


# -- a whole run -------------------------------------------------------------------------------------------------------


def test_a_run_from_a_local_folder_goes_from_pictures_to_metrics(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fiood_core.tasks.SHOW_PROGRESS", False)
    saved(tmp_path / "model", "ViT", classes=2)
    random = np.random.default_rng(0)
    for folder, shape in (("id", (40, 50)), ("train", (60, 35)), ("ood", (33, 64))):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(4):
            pixels = random.integers(0, 256, (*shape, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
        labels = "".join(f"{number}.png,{number % 2}\n" for number in range(4))
        (tmp_path / folder / "labels.csv").write_text(f"path,label\n{labels}")
    command = import_module("fiood_core.cli._run").command
    arguments = [
        "--backbone",
        f"timm(model='{tmp_path / 'model'}')",
        "--id",
        "folder:id/labels.csv",
        "--ood",
        "noise=folder:ood",
    ]
    arguments += [
        "--train",
        "folder:train/labels.csv",
        "--detector",
        "msp,energy,cosine",
        "--device",
        "cpu",
        "--output",
        "out",
    ]
    ran = CliRunner().invoke(command, arguments)
    assert ran.exit_code == 0, ran.output
    rows = fiood_results(tmp_path / "out")
    assert [row["status"] for row in rows] == ["ok"] * 3
    assert {(row["n_id"], row["n_ood"]) for row in rows} == {(4, 4)}
    again = CliRunner().invoke(command, arguments)
    assert again.exit_code == 0, again.output


def fiood_results(directory):
    from fiood_core import results

    return results.load(directory).rows


def test_explaining_a_run_names_the_weights_to_get_and_fetches_none(tmp_path, monkeypatch):
    monkeypatch.delenv("FIOOD_OFFLINE")
    arguments = ["--backbone", "timm(preset=ResNet50),timm(preset=BiT-s)", "--benchmark", "digits", "--detector", "msp"]
    command = import_module("fiood_core.cli._run").command
    ran = CliRunner().invoke(command, [*arguments, "--explain", "--output", str(tmp_path)])
    assert ran.exit_code == 1
    assert "the weights of resnet50.a1_in1k are not on this machine" in ran.output
    assert "https://huggingface.co/timm/resnet50.a1_in1k/resolve/main/model.safetensors" in ran.output
    assert "https://storage.googleapis.com/bit_models/BiT-S-R101x1.npz" in ran.output
