"""Extraction: every picture through the backbone once, whatever interrupts it, and nothing wrong unnoticed."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from fiood_core import extract as extract_module
from fiood_core import sealed
from fiood_core import store as store_module
from fiood_core.backbone import Backbone, Card, ModuleBackbone, Outputs, VisionLanguageBackbone
from fiood_core.column import Column, ImageBatch
from fiood_core.dataset import Dataset, Info, View
from fiood_core.errors import (
    DataError,
    GateError,
    ImageError,
    InputError,
    ParameterError,
    StoreError,
)
from fiood_core.extract import Extracted, ExtractSettings, extract, missing, pick_device
from fiood_core.head import Head
from fiood_core.images import ImagePolicy
from fiood_core.store import FeatureStore

posix = pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")
SETTINGS = ExtractSettings(device="cpu", batch_size=3, progress=False)
SKIP = replace(SETTINGS, images=ImagePolicy(on_error="skip-and-count"))


class ToTensor:
    """A transform that worker processes can be sent."""

    def __call__(self, picture: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255

    def __repr__(self) -> str:
        return "ToTensor()"


class Noise(Dataset):
    """Pictures of seeded noise, without files; opening one can take a while."""

    info = Info(title="noise")

    def __init__(self, count: int = 20, first: int = 0, seconds: float = 0.0, labelled: bool = True) -> None:
        self.numbers, self.seconds, self.labelled = range(first, first + count), seconds, labelled
        self.opened: list[str] = []

    def view(self) -> View:
        targets = [(i % 4,) for i in self.numbers] if self.labelled else None
        return View(
            "noise", [f"n{i}" for i in self.numbers], targets, subsets={"even": list(range(0, len(self.numbers), 2))}
        )

    def open(self, image_id: str) -> Image.Image:
        time.sleep(self.seconds)
        self.opened.append(image_id)
        pixels = np.random.default_rng(int(image_id[1:])).integers(0, 256, (6, 6, 3), dtype=np.uint8)
        return Image.fromarray(pixels)

    def stamps(self, ids: Sequence[str]) -> list[str]:
        return ["1"] * len(ids)


class Files(Dataset):
    """The files of a folder, in order of their names."""

    info = Info(title="files")

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def view(self) -> View:
        return View(f"files:{self.folder}", sorted(path.name for path in self.folder.iterdir()))

    def open(self, image_id: str) -> Path:
        return self.folder / image_id


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    noise = Noise(12)
    for i in range(12):
        noise.open(f"n{i}").save(folder / f"p{i:02d}.png")
    return folder


class Gradient(Column):
    """The norm of the gradient of the largest logit with respect to the picture: a column that needs autograd."""

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    @property
    def key(self) -> str:
        return f"gradient[power={self.power}]"

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        images = batch.images.detach().clone().requires_grad_(True)
        backbone.forward(images).logits.amax(dim=1).sum().backward()
        assert images.grad is not None
        return images.grad.flatten(1).norm(dim=1) ** self.power


class Hidden(Column):
    """What leaves the first layer during the one shared forward pass."""

    key = "hidden"

    @contextlib.contextmanager
    def watch(self, backbone: Backbone, captured: dict[str, Any]) -> Iterator[None]:
        handle = backbone.module[1].register_forward_hook(lambda *args: captured.update(out=args[2].detach()))
        yield
        handle.remove()

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        return batch.captured["out"]


class Random(Column):
    """Random numbers, as dropout passes draw them."""

    key = "random"

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        return torch.rand(len(batch.images), 2)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(108, 16), nn.ReLU(), nn.Linear(16, 4))


def backbone_of(module: nn.Module | None = None) -> ModuleBackbone:
    return ModuleBackbone(module or network(), ToTensor(), "3", "net", None)


class Counting(ModuleBackbone):
    """A backbone that counts how often it is loaded and run."""

    loads = 0
    images = 0

    def load(self, device: torch.device | str = "cpu") -> None:
        self.loads += 1
        super().load(device)

    def forward(self, images: Tensor) -> Outputs:
        self.images += len(images)
        return super().forward(images)


def counting() -> Counting:
    return Counting(network(), ToTensor(), "3", "net", None)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight rows a shard, so that twenty pictures make three."""
    monkeypatch.setattr(store_module, "SHARD_ROWS", 8)
    monkeypatch.setattr(extract_module, "SHARD_ROWS", 8)
    sealed.forget()


def files(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def all_rows(rows: Any) -> Tensor:
    found: Tensor = rows[0 : rows.shape[0]]
    return found


class OwnHead(Counting):
    """The features of :func:`counting` under a head of its own, which it gets when it is told to prepare."""

    def __init__(self, scale: float) -> None:
        self.scale, self.prepared = scale, 0
        super().__init__(network(), ToTensor(), "3", "net", None)

    def prepare(self, store: FeatureStore, settings: ExtractSettings) -> None:
        extract(counting(), Noise(8), store, settings)  # it may bring pictures through the backbone
        self.prepared += 1

    @property
    def head(self) -> Head:
        own = super().head
        assert own.bias is not None
        return Head(own.weight * self.scale, own.bias * self.scale) if self.prepared else own

    @property
    def weights_digest(self) -> str:
        return f"{super().weights_digest} × {self.scale}"

    def features_key(self, *, dtype: str = "float32", autocast: str | None = None) -> str:
        return counting().key(dtype=dtype, autocast=autocast)

    def forward(self, images: Tensor) -> Outputs:
        features = super().forward(images).features.float()
        return Outputs(features, self.head(features))


# -- values --------------------------------------------------------------------------------------------------------


def test_features_head_labels_and_ids_are_those_of_the_model(tmp_path: Path) -> None:
    module = network()
    got = extract(backbone_of(module), Noise(), FeatureStore(tmp_path), SETTINGS)
    images = torch.stack([ToTensor()(Noise().open(name)) for name in Noise().view().ids])
    with torch.no_grad():
        expected = module[:3](images)
        logits = module(images)
    assert torch.allclose(all_rows(got.features.features), expected, atol=1e-6)
    assert got.features.head is not None
    assert torch.allclose(got.features.head(expected), logits, atol=1e-6)
    assert got.features.logits is None  # they are the head's product with the features
    assert got.features.labels is not None
    assert got.features.labels.tolist() == [i % 4 for i in range(20)]
    assert list(got.features.ids or ()) == list(got.view.ids) == [f"n{i}" for i in range(20)]
    assert got.computed == 20
    assert got.skipped == ()


def test_a_second_run_reads_the_store_and_loads_nothing(tmp_path: Path) -> None:
    first = extract(counting(), Noise(), FeatureStore(tmp_path), SETTINGS)
    before = files(tmp_path)
    backbone, dataset = counting(), Noise()
    second = extract(backbone, dataset, FeatureStore(tmp_path), SETTINGS)
    assert (second.computed, backbone.loads, dataset.opened) == (0, 0, [])
    assert torch.equal(all_rows(second.features.features), all_rows(first.features.features))
    assert second.content == first.content
    assert files(tmp_path) == before


def test_backbones_with_heads_of_their_own_share_features_and_nothing_else(tmp_path: Path) -> None:
    store, backbone = FeatureStore(tmp_path), OwnHead(2.0)
    first = extract(backbone, Noise(), store, SETTINGS, columns=[Gradient()])
    assert (backbone.prepared, first.computed) == (1, 12 + 20)  # the last twelve; and all of them for the column
    other = extract(OwnHead(3.0), Noise(), store, SETTINGS, columns=[Gradient()])
    plain = extract(counting(), Noise(), store, SETTINGS, columns=[Gradient()])
    assert (other.computed, plain.computed) == (20, 20)
    for found, scale in ((first, 2.0), (other, 3.0)):
        assert found.features.head is not None
        assert plain.features.head is not None
        assert torch.equal(found.features.head.weight, plain.features.head.weight * scale)
        assert torch.equal(all_rows(found.features.features), all_rows(plain.features.features))
        column = all_rows(found.features.columns[Gradient().key])
        assert torch.allclose(column, scale * all_rows(plain.features.columns[Gradient().key]), atol=1e-4)
    again = OwnHead(2.0)
    assert extract(again, Noise(), store, SETTINGS, columns=[Gradient()]).computed == 0
    assert (again.prepared, again.loads) == (0, 0)


def test_a_head_of_its_own_gives_the_logits_in_half_precision_too(tmp_path: Path) -> None:
    half = replace(SETTINGS, autocast="bfloat16")
    extract(counting(), Noise(), FeatureStore(tmp_path), half)
    found = extract(OwnHead(2.0), Noise(), FeatureStore(tmp_path), half)
    assert (found.computed, found.features.logits) == (0, None)


def test_a_picture_in_two_views_goes_through_the_backbone_once(tmp_path: Path) -> None:
    backbone, store = counting(), FeatureStore(tmp_path)
    extract(backbone, Noise(10), store, SETTINGS)
    both = extract(backbone, Noise(20, first=5), store, SETTINGS)
    assert backbone.images == 25
    assert both.computed == 15
    alone = extract(backbone_of(), Noise(20, first=5), FeatureStore(tmp_path / "other"), SETTINGS)
    assert torch.allclose(all_rows(both.features.features), all_rows(alone.features.features), atol=1e-6)


def test_workers_give_the_same_bytes(tmp_path: Path) -> None:
    for workers in (0, 2):
        extract(backbone_of(), Noise(), FeatureStore(tmp_path / str(workers)), replace(SETTINGS, workers=workers))
    assert files(tmp_path / "0") == files(tmp_path / "2")


def test_the_callers_random_numbers_and_settings_are_left_alone(tmp_path: Path) -> None:
    backbone, before = backbone_of(), torch.get_float32_matmul_precision()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    extract(backbone, Noise(), FeatureStore(tmp_path), SETTINGS, columns=[Random()])
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_float32_matmul_precision() == before


def test_labels_are_given_only_where_each_picture_has_one_class(tmp_path: Path) -> None:
    class Several(Noise):
        def view(self) -> View:
            return replace(super().view(), targets=[(0, 1)] + [(1,)] * 19)

    assert extract(backbone_of(), Several(), FeatureStore(tmp_path), SETTINGS).features.labels is None
    assert extract(backbone_of(), Noise(labelled=False), FeatureStore(tmp_path), SETTINGS).features.labels is None


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="noise has no pictures"):
        extract(backbone_of(), Noise(0), FeatureStore(tmp_path), SETTINGS)


def test_content_changes_with_labels_pictures_policy_and_head(tmp_path: Path) -> None:
    class Touched(Noise):
        def stamps(self, ids: Sequence[str]) -> list[str]:
            return ["2"] * len(ids)

    store = FeatureStore(tmp_path)
    other = network()
    other[3].bias.data += 1
    contents = [
        extract(backbone, dataset, store, settings).content
        for backbone, dataset, settings in (
            (backbone_of(), Noise(), SETTINGS),
            (backbone_of(), Noise(labelled=False), SETTINGS),
            (backbone_of(), Noise(19), SETTINGS),
            (backbone_of(), Touched(), SETTINGS),
            (backbone_of(), Noise(), replace(SETTINGS, images=ImagePolicy(max_pixels=1000))),
            (backbone_of(other), Noise(), SETTINGS),
        )
    ]
    assert len(set(contents)) == 6


# -- columns -------------------------------------------------------------------------------------------------------


def test_columns_are_computed_on_the_way_in_one_shared_forward_pass(tmp_path: Path) -> None:
    backbone = counting()
    got = extract(backbone, Noise(), FeatureStore(tmp_path), SETTINGS, columns=[Hidden()])
    assert backbone.images == 20
    hidden, features = (all_rows(rows) for rows in (got.features.columns["hidden"], got.features.features))
    assert torch.equal(hidden.relu(), features)


def test_a_column_that_needs_gradients_gets_them(tmp_path: Path) -> None:
    with torch.no_grad():
        got = extract(backbone_of(), Noise(), FeatureStore(tmp_path), SETTINGS, columns=[Gradient(), Gradient(2.0)])
    norms = all_rows(got.features.columns["gradient[power=1.0]"])
    assert norms.shape == (20,)
    assert bool((norms > 0).all())
    assert torch.allclose(all_rows(got.features.columns["gradient[power=2.0]"]), norms**2)


def test_a_column_added_later_leaves_the_features_alone(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path / "later")
    extract(backbone_of(), Noise(), store, SETTINGS)
    before = files(tmp_path / "later")
    extract(backbone_of(), Noise(), store, SETTINGS, columns=[Gradient()])
    extract(backbone_of(), Noise(), FeatureStore(tmp_path / "at once"), SETTINGS, columns=[Gradient()])
    assert before.items() <= files(tmp_path / "later").items()
    assert files(tmp_path / "later") == files(tmp_path / "at once")


def test_a_column_of_a_wrong_length_or_with_nan_is_refused_by_name(tmp_path: Path) -> None:
    class Short(Gradient):
        def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
            return torch.zeros(len(batch.images) - 1)

    class Broken(Gradient):
        def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
            return torch.full((len(batch.images),), torch.nan)

    with pytest.raises(InputError, match=r"gradient.*shape \(2,\) for 3 pictures"):
        extract(backbone_of(), Noise(), FeatureStore(tmp_path), SETTINGS, columns=[Short()])
    with pytest.raises(InputError, match=r"gradient.*NaN.*n0, n1, n2"):
        extract(backbone_of(), Noise(), FeatureStore(tmp_path), SETTINGS, columns=[Broken()])


class Vlm(VisionLanguageBackbone):
    """A vision-language backbone in miniature."""

    card = Card(title="vlm")
    weights_digest = "0" * 64
    text_digest = "1" * 64
    transform = ToTensor()
    head: Head = None  # type: ignore[assignment]

    def load(self, device: torch.device | str = "cpu") -> None:
        torch.manual_seed(0)
        self.projection = torch.randn(108, 5)

    def forward(self, images: Tensor) -> Outputs:
        features = nn.functional.normalize(images.flatten(1) @ self.projection, dim=1)
        return Outputs(features, self.head(features))

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        return nn.functional.normalize(torch.ones(len(texts), 5), dim=1)

    def set_classes(self, head: Head) -> None:
        self.head = head


def test_labels_are_the_rows_of_a_head_whose_names_stand_for_several_classes(tmp_path: Path) -> None:
    backbone = Vlm()
    backbone.set_classes(Head(torch.randn(3, 5), temperature=0.01, classes=[(0,), (1, 3), (2,)]))
    got = extract(backbone, Noise(8), FeatureStore(tmp_path), SETTINGS)
    assert got.features.labels is not None
    assert got.features.labels.tolist() == [0, 1, 2, 1, 0, 1, 2, 1]
    backbone.set_classes(Head(torch.randn(2, 5), temperature=0.01, classes=[(0,), (1, 3)]))
    with pytest.raises(InputError, match="no row of the head stands for class 2"):
        extract(backbone, Noise(8), FeatureStore(tmp_path), SETTINGS)


class NeedsHead(Column):
    """The largest logit, from the head it is given."""

    key = "largest"
    needs_head = True

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        return head(batch.features).amax(dim=1)


def test_a_vision_language_model_keeps_its_features_whatever_the_vocabulary(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    found = []
    for seed in (1, 2):
        backbone = Vlm()
        head = Head(torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)), temperature=0.01)
        backbone.set_classes(head)
        found.append(extract(backbone, Noise(), store, SETTINGS, columns=[NeedsHead()]))
        assert found[-1].features.head is head
        features, largest = all_rows(found[-1].features.features), all_rows(found[-1].features.columns["largest"])
        assert torch.allclose(head(features).amax(dim=1), largest, atol=1e-4)
    assert torch.equal(all_rows(found[0].features.features), all_rows(found[1].features.features))
    assert len(list(tmp_path.rglob("features.json"))) == 1
    assert not list(tmp_path.rglob("head.safetensors"))
    assert extract(backbone, Noise(), store, SETTINGS).computed == 0


# -- checks of the model -------------------------------------------------------------------------------------------


class Skewed(ModuleBackbone):
    """A backbone whose outputs are changed on the way."""

    def __init__(self, change: Callable[[Outputs], Outputs]) -> None:
        super().__init__(network(), ToTensor(), "3", "skewed", None)
        self.change = change

    def forward(self, images: Tensor) -> Outputs:
        return self.change(super().forward(images))


@pytest.mark.parametrize(
    "change",
    [
        lambda out: Outputs(out.features * 1.01, out.logits),
        lambda out: Outputs(out.features, out.logits.flip(1)),
        lambda out: Outputs(out.features, out.logits + 0.1),
        lambda out: Outputs(out.features[:, :-1], out.logits),
        lambda out: Outputs(out.features, out.logits[:, :-1]),
    ],
)
def test_a_head_that_does_not_give_the_logits_stops_the_run(
    change: Callable[[Outputs], Outputs], tmp_path: Path
) -> None:
    with pytest.raises(GateError, match="skewed"):
        extract(Skewed(change), Noise(), FeatureStore(tmp_path), SETTINGS)
    assert not list(tmp_path.rglob("features*"))


def test_the_largest_difference_and_the_likely_cause_are_named(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"differs from the logits by up to 0\.1.*Likely"):
        extract(Skewed(lambda out: Outputs(out.features, out.logits + 0.1)), Noise(), FeatureStore(tmp_path), SETTINGS)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_tolerance_goes_by_the_scale_of_the_logits(scale: float, tmp_path: Path) -> None:
    class OtherHead(ModuleBackbone):
        @property
        def head(self) -> Head:
            return Head(super().head.weight * 1.001, super().head.bias)

    module = network()
    module[3].weight.data *= scale
    module[3].bias.data *= scale
    extract(backbone_of(module), Noise(), FeatureStore(tmp_path / "sound"), SETTINGS)
    with pytest.raises(GateError, match="differs"):
        extract(OtherHead(module, ToTensor(), "3", "net", None), Noise(), FeatureStore(tmp_path / "skewed"), SETTINGS)


def test_nan_in_features_stops_the_run_with_the_ids(tmp_path: Path) -> None:
    def spoil(out: Outputs) -> Outputs:
        features = out.features.clone()
        features[1] = torch.nan
        return Outputs(features, out.logits)

    with pytest.raises(InputError, match=r"features of skewed hold NaN.*n1; likely"):
        extract(Skewed(spoil), Noise(), FeatureStore(tmp_path), SETTINGS)


def test_a_model_in_training_mode_is_refused_before_and_after(tmp_path: Path) -> None:
    class Training(Counting):
        def load(self, device: torch.device | str = "cpu") -> None:
            super().load(device)
            self.module.train()

    class Wakes(Hidden):
        def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
            backbone.module.train()
            return super().compute(batch, backbone, head)

    with pytest.raises(GateError, match="training mode"):
        extract(Training(network(), ToTensor(), "3", "net", None), Noise(), FeatureStore(tmp_path), SETTINGS)
    with pytest.raises(GateError, match="training mode"):
        extract(backbone_of(), Noise(), FeatureStore(tmp_path), SETTINGS, columns=[Wakes()])
    assert not list(tmp_path.rglob("00000.safetensors"))


def test_autocast_is_another_key_and_keeps_the_models_own_logits(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    plain = extract(backbone_of(), Noise(), store, SETTINGS)
    half = extract(backbone_of(), Noise(), store, replace(SETTINGS, autocast="bfloat16"))
    assert half.computed == 20
    features = all_rows(half.features.features)
    assert features.dtype == torch.float32
    assert not torch.equal(features, all_rows(plain.features.features))
    assert half.features.logits is not None
    assert half.features.logits.shape == (20, 4)


@pytest.mark.parametrize(
    "bad", [{"batch_size": 0}, {"workers": -1}, {"autocast": "int8"}], ids=["batch", "workers", "autocast"]
)
def test_settings_that_cannot_be_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        ExtractSettings(**bad)


def test_the_device_is_one_setting() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    for name in ("warp", "cuda:99"):
        with pytest.raises(ParameterError, match=name):
            pick_device(name)


# -- pictures ------------------------------------------------------------------------------------------------------


def test_a_broken_picture_stops_the_run_by_name_and_a_mended_one_lets_it_go_on(pictures: Path, tmp_path: Path) -> None:
    good = (pictures / "p10.png").read_bytes()
    (pictures / "p10.png").write_bytes(good[:60])
    store, backbone = FeatureStore(tmp_path / "store"), counting()
    with pytest.raises(ImageError, match=r"p10\.png.*skip-and-count"):
        extract(backbone, Files(pictures), store, SETTINGS)
    (pictures / "p10.png").write_bytes(good)
    mended = extract(backbone, Files(pictures), store, SETTINGS)
    assert mended.computed == 4  # the first shard's eight were kept, though the list is a new one
    clean = extract(backbone_of(), Files(pictures), FeatureStore(tmp_path / "clean"), SETTINGS)
    assert torch.equal(all_rows(mended.features.features), all_rows(clean.features.features))


def test_skipped_pictures_are_counted_named_and_taken_out_and_a_cached_run_says_it_again(
    pictures: Path, tmp_path: Path
) -> None:
    (pictures / "p01.png").write_bytes(b"")
    (pictures / "p09.png").write_bytes(b"no picture")
    store = FeatureStore(tmp_path / "store")
    first = extract(backbone_of(), Files(pictures), store, SKIP, columns=[Gradient()])
    assert [name for name, _ in first.skipped] == ["p01.png", "p09.png"]
    assert "empty" in first.skipped[0][1]
    assert first.computed == len(first.view) == len(first.features) == 10
    assert "p01.png" not in first.view.ids
    assert bool(torch.isfinite(all_rows(first.features.features)).all())
    assert first.features.columns["gradient[power=1.0]"].shape == (10,)
    again = extract(backbone_of(), Files(pictures), store, SKIP, columns=[Gradient()])
    assert (again.skipped, again.computed, again.content) == (first.skipped, 0, first.content)
    assert torch.equal(all_rows(again.features.features), all_rows(first.features.features))


def test_pictures_that_an_earlier_run_skipped_still_stop_a_strict_one(pictures: Path, tmp_path: Path) -> None:
    (pictures / "p01.png").write_bytes(b"")
    store = FeatureStore(tmp_path / "store")
    extract(backbone_of(), Files(pictures), store, SKIP)
    with pytest.raises(ImageError, match=r"p01\.png is an empty file.*earlier run"):
        extract(backbone_of(), Files(pictures), store, SETTINGS)
    Noise().open("n1").save(pictures / "p01.png")
    assert extract(backbone_of(), Files(pictures), store, SETTINGS).computed == 1


def test_subsets_and_targets_follow_what_was_left_out(tmp_path: Path) -> None:
    class Broken(Noise):
        def open(self, image_id: str) -> Image.Image:
            if image_id == "n2":
                raise ImageError("picture 'n2' is broken")
            return super().open(image_id)

    got = extract(backbone_of(), Broken(6), FeatureStore(tmp_path), SKIP)
    assert got.view.ids == ["n0", "n1", "n3", "n4", "n5"]
    assert got.view.subsets == {"even": [0, 3]}
    assert got.features.labels is not None
    assert got.features.labels.tolist() == [0, 1, 3, 0, 1]


def test_a_whole_shard_of_broken_pictures_is_left_out_and_all_broken_is_an_error(
    pictures: Path, tmp_path: Path
) -> None:
    for i in range(8):
        (pictures / f"p{i:02d}.png").write_bytes(b"x")
    got = extract(backbone_of(), Files(pictures), FeatureStore(tmp_path / "store"), SKIP)
    assert len(got.skipped) == 8
    assert got.features.features.shape == (4, 16)
    for i in range(8, 12):
        (pictures / f"p{i:02d}.png").write_bytes(b"x")
    with pytest.raises(ImageError, match="none of the 12 pictures of files"):
        extract(backbone_of(), Files(pictures), FeatureStore(tmp_path / "none"), SKIP)


def test_a_missing_file_is_an_image_error_by_the_policy(pictures: Path, tmp_path: Path) -> None:
    class Listed(Files):
        def view(self) -> View:
            return View("listed", ["p00.png", "gone.png"])

    with pytest.raises(ImageError, match=r"gone\.png does not exist"):
        extract(backbone_of(), Listed(pictures), FeatureStore(tmp_path / "a"), SETTINGS)
    assert extract(backbone_of(), Listed(pictures), FeatureStore(tmp_path / "b"), SKIP).skipped[0][0] == "gone.png"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_picture_is_named_from_worker_processes_too(workers: int, pictures: Path, tmp_path: Path) -> None:
    (pictures / "p03.png").write_bytes(b"")
    with pytest.raises(ImageError, match=r"^picture 'p03\.png'"):
        extract(backbone_of(), Files(pictures), FeatureStore(tmp_path / "s"), replace(SETTINGS, workers=workers))


def test_an_error_leaves_no_lock_with_the_workers(pictures: Path, tmp_path: Path) -> None:
    (pictures / "p03.png").write_bytes(b"")
    store = FeatureStore(tmp_path / "store")
    with pytest.raises(ImageError) as caught:  # the traceback keeps the workers alive
        extract(backbone_of(), Files(pictures), store, replace(SETTINGS, workers=2))
    heard: list[str] = []
    extract(backbone_of(), Files(pictures), store, SKIP, event=lambda name, **_: heard.append(name))
    assert "extraction-waiting" not in heard
    assert caught.value is not None


class Crops(ToTensor):
    def __call__(self, picture: Image.Image) -> Tensor:
        return super().__call__(picture)[:, : 3 + int(np.array(picture)[0, 0, 0]) % 3]


class Fails(ToTensor):
    def __call__(self, picture: Image.Image) -> Tensor:
        raise RuntimeError("no such layer")


@pytest.mark.parametrize(("transform", "message"), [(Crops(), "different shapes"), (Fails(), "picture 'n0'.*no such")])
def test_a_transform_that_fails_is_no_matter_for_the_image_policy(
    transform: ToTensor, message: str, tmp_path: Path
) -> None:
    backbone = ModuleBackbone(network(), transform, "3", "net", None)
    with pytest.raises(InputError, match=message):
        extract(backbone, Noise(), FeatureStore(tmp_path), SKIP)


def test_a_transform_that_cannot_be_sent_to_workers_is_refused_with_the_way_out(tmp_path: Path) -> None:
    backbone = ModuleBackbone(network(), lambda picture: ToTensor()(picture), "3", "net", None)
    with pytest.raises(InputError, match=r"transform of net.*module level, or set workers to 0"):
        extract(backbone, Noise(), FeatureStore(tmp_path), replace(SETTINGS, workers=1))


def test_what_workers_are_sent_survives_pickling() -> None:
    task = extract_module._Pictures(Noise(3), ["n0", "n1"], ToTensor(), ImagePolicy())
    row, tensor = pickle.loads(pickle.dumps(task))[1]
    assert row == 1
    assert isinstance(tensor, Tensor)


@pytest.mark.slow
def test_spawned_workers_give_the_same_bytes(tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        "import multiprocessing, sys\nfrom pathlib import Path\nimport torch, numpy as np\nfrom PIL import Image\n"
        "from fiood_core import from_module\nfrom fiood_core.dataset import Dataset, Info, View\n"
        "from fiood_core.extract import extract, ExtractSettings\nfrom fiood_core.store import FeatureStore\n"
        "class Noise(Dataset):\n"
        "    info = Info(title='noise')\n"
        "    def view(self): return View('noise', [str(i) for i in range(9)])\n"
        "    def stamps(self, ids): return ['1'] * len(ids)\n"
        "    def open(self, name): return Image.new('RGB', (4, 4), (int(name) * 20, 7, 9))\n"
        "class ToTensor:\n"
        "    def __call__(self, p): return torch.from_numpy(np.array(p.resize((4, 4)))).permute(2, 0, 1).float()\n"
        "    def __repr__(self): return 'ToTensor()'\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.set_start_method('spawn')\n"
        "    torch.manual_seed(0)\n"
        "    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))\n"
        "    for workers in (0, 1):\n"
        "        extract(from_module(net, ToTensor()), Noise(), FeatureStore(Path(sys.argv[1]) / str(workers)),\n"
        "                ExtractSettings(device='cpu', batch_size=4, workers=workers, progress=False))\n"
    )
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=120)
    assert files(tmp_path / "0") == files(tmp_path / "1")


# -- what is missing, and what is heard -------------------------------------------------------------------------------


def test_missing_says_what_there_is_to_do_and_does_nothing(tmp_path: Path) -> None:
    backbone, store = counting(), FeatureStore(tmp_path / "store")
    before = missing(backbone, Noise(), store, SETTINGS, [Gradient()])
    assert (before.images, before.total, before.columns) == (20, 20, ("features", "gradient[power=1.0]"))
    assert before.bytes is None
    assert backbone.loads == 0
    assert not (tmp_path / "store").exists()
    extract(backbone, Noise(), store, SETTINGS)
    after = missing(backbone, Noise(25), store, SETTINGS)
    assert (after.images, after.total, after.columns, after.bytes) == (5, 25, ("features",), 5 * 16 * 4)
    assert missing(backbone, Noise(), store, SETTINGS) == extract_module.Missing(0, 20, (), 0)


def test_progress_shows_pictures_per_second_and_time_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[str] = []
    settings = replace(SETTINGS, progress=True)
    extract(backbone_of(), Noise(), FeatureStore(tmp_path), settings, event=lambda name, **_: heard.append(name))
    shown = capsys.readouterr().err
    assert "noise · net" in shown
    assert "img/s" in shown
    assert "20/20" in shown
    assert heard == ["extraction-started"] + ["extraction-shard"] * 3


# -- interruptions -------------------------------------------------------------------------------------------------

COLUMNS = (Gradient(), Random())


def run(root: Path, seconds: float = 0.0) -> Extracted:
    return extract(backbone_of(), Noise(seconds=seconds), FeatureStore(root), SETTINGS, columns=COLUMNS)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that nothing interrupted."""
    root = tmp_path_factory.mktemp("clean")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "SHARD_ROWS", 8)
        patch.setattr(extract_module, "SHARD_ROWS", 8)
        run(root)
    return files(root)


def in_child(work: Callable[[], object]) -> int:
    """Start a process that does some work and exits with 0, or with 1 if it raises."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        torch.set_num_threads(1)
        work()
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(status)


@pytest.mark.slow
@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_at_twenty_random_moments_and_resumed_the_store_is_that_of_an_unbroken_run(
    tmp_path: Path, clean: dict[str, bytes]
) -> None:
    started = time.monotonic()
    assert os.waitpid(in_child(lambda: run(tmp_path / "unbroken", seconds=0.002)), 0)[1] == 0
    duration = time.monotonic() - started
    generator, killed, attempt = random.Random(7), 0, 0
    while killed < 20:
        attempt += 1
        root = tmp_path / str(attempt)
        for _ in range(2):  # the second kill hits a resumed run
            child = in_child(lambda root=root: run(root, seconds=0.002))  # type: ignore[misc]
            time.sleep(generator.uniform(0, duration))
            os.kill(child, signal.SIGKILL)
            killed += os.waitpid(child, 0)[1] == signal.SIGKILL
        run(root)
        assert files(root) == clean


@pytest.mark.slow
@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("moment", ["half written", "written", "flushed", "renamed"])
def test_killed_at_every_write_and_rename_and_resumed_the_store_is_that_of_an_unbroken_run(
    moment: str, tmp_path: Path, clean: dict[str, bytes]
) -> None:
    for attempt in range(len(clean)):
        root = tmp_path / str(attempt)

        def work(attempt: int = attempt, root: Path = root) -> None:
            _die_at(moment, attempt)
            run(root)

        assert os.waitpid(in_child(work), 0)[1] == signal.SIGKILL
        run(root)
        assert files(root) == clean


def _die_at(moment: str, number: int) -> None:
    """Make this process kill itself at the n-th file that it writes."""
    counts = {"fsync": 0, "replace": 0}
    fsync, replace_file = os.fsync, os.replace

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_fsync(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            return fsync(handle)
        if counts["fsync"] == number and moment == "half written":
            os.ftruncate(handle, os.fstat(handle).st_size // 2)
            die()
        if counts["fsync"] == number and moment == "written":
            die()
        counts["fsync"] += 1
        return fsync(handle)

    def dying_replace(source: Path, target: Path) -> None:
        if counts["replace"] == number and moment == "flushed":
            die()
        replace_file(source, target)
        if counts["replace"] == number and moment == "renamed":
            die()
        counts["replace"] += 1

    os.fsync, os.replace = dying_fsync, dying_replace


@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_runs_at_once_on_one_store_give_what_one_gives(tmp_path: Path, clean: dict[str, bytes]) -> None:
    for attempt in range(5):
        root = tmp_path / str(attempt)
        children = [in_child(lambda root=root: run(root, seconds=0.002)) for _ in range(3)]  # type: ignore[misc]
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        assert files(root) == clean
        assert run(root).computed == 0


@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_that_waited_for_another_computes_nothing(tmp_path: Path) -> None:
    child = in_child(lambda: run(tmp_path, seconds=0.02))
    while not list(tmp_path.rglob("rows.safetensors")):
        time.sleep(0.005)
    heard: list[str] = []
    backbone = counting()
    extract(
        backbone, Noise(), FeatureStore(tmp_path), SETTINGS, columns=COLUMNS, event=lambda name, **_: heard.append(name)
    )
    assert heard == ["extraction-waiting"]
    assert backbone.loads == 0
    assert os.waitpid(child, 0)[1] == 0


def test_a_column_whose_shards_are_there_is_resumed_shard_by_shard(tmp_path: Path, clean: dict[str, bytes]) -> None:
    run(tmp_path)
    for path in tmp_path.rglob("features.json"):
        path.unlink()
    for path in tmp_path.rglob("features/00001.safetensors"):
        path.unlink()
    assert run(tmp_path).computed == 8
    assert files(tmp_path) == clean


def test_another_batch_size_is_another_segment(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    noise = Noise()
    pictures_of = store_module.Pictures(noise.view().ids, noise.stamps(noise.view().ids))
    names = {store.shelf("a" * 64, "noise", ImagePolicy(), size).segment(pictures_of.hashes).place for size in (3, 4)}
    assert len(names) == 2


# -- full disks ----------------------------------------------------------------------------------------------------


def test_a_full_disk_stops_the_run_keeps_what_was_written_and_leaves_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: dict[str, bytes]
) -> None:
    fsync, counter = os.fsync, {"shards": 0}

    def full(handle: int) -> None:
        name = os.readlink(f"/proc/self/fd/{handle}")
        counter["shards"] += "features/.00" in name
        if counter["shards"] > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"disk full.*00002\.safetensors.*kept.*run again.*2 of 3 shards"):
        run(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
    monkeypatch.undo()
    monkeypatch.setattr(store_module, "SHARD_ROWS", 8)
    monkeypatch.setattr(extract_module, "SHARD_ROWS", 8)
    assert run(tmp_path).computed == 4
    assert files(tmp_path) == clean


@posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_limit_on_file_size_is_a_full_disk_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
        run(tmp_path)

    assert os.waitpid(in_child(work), 0)[1] != 0
    assert "StoreError: disk full" in capfd.readouterr().err.replace("DiskFullError", "StoreError")
    assert not list(tmp_path.rglob("*.tmp"))


@posix
def test_a_small_file_system_that_fills_up(tmp_path: Path, clean: dict[str, bytes]) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("may not mount a file system here")
    try:
        filler = place / "filler"
        filler.write_bytes(bytes(28 * 1024))
        with pytest.raises(StoreError, match="disk full"):
            run(place / "store")
        assert not list(place.rglob("*.tmp"))
        filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=4m", str(place)], check=True)
        run(place / "store")
        assert files(place / "store") == clean
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreError, match="store"):
        run(tmp_path / "store")
