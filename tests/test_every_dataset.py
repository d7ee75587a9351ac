"""Every dataset of the papers: prepared from a mirror of a small archive in its real layout, verified, and run."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from PIL import Image

import fiood_core as fiood
from fiood_core import imagenet, offline, registry, results
from fiood_core import suite as suites
from fiood_core.cli import data
from fiood_core.errors import DataError, SuiteError
from fiood_core.request import Request
from fiood_core.shelved import ShelvedDataset
from fiood_core.testing.listed import manifest, picture_file
from fiood_core.testing.loopback import mirror

HERE = Path(__file__).parent
FIOOD_RUN = import_module("fiood_core.cli._run").command
WNIDS = imagenet.wnids()
VAL = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 13)]
TRAIN = {WNIDS[0]: 3, WNIDS[5]: 4, WNIDS[999]: 3}
NINCO = "NINCO_all.tar.gz"
OF_NINCO, SAMPLES, UNIT_TESTS = "NINCO_OOD_classes", "NINCO_popular_datasets_subsamples", "NINCO_OOD_unit_tests"

Files = Mapping[str, bytes]
Entries = Sequence[Mapping[str, Any]]


def tar(files: Files, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as tape:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tape.addfile(info, io.BytesIO(content))
    return out.getvalue()


def tar_gz(files: Files) -> bytes:
    return tar(files, "w:gz")


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return out.getvalue()


def tar_of_tars(files: Files) -> bytes:
    """One archive a class, as ImageNet's training set and ImageNet-21k are distributed."""
    classes: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        wnid, _, file = name.rpartition("/")
        classes.setdefault(wnid, {})[file] = content
    return tar({f"{wnid}.tar": tar(inner) for wnid, inner in classes.items()})


def of_wnids(*wnids: str) -> Entries:
    return [{"id": f"{wnid}/{wnid}_{n}.JPEG", "wnid": wnid} for wnid in wnids for n in (1, 10, 2)]


def labelled(names: Sequence[str], *subsets: str) -> Entries:
    return [{"id": name, "targets": [7 * i], "subsets": list(subsets)} for i, name in enumerate(names)]


def named(*names: str) -> Entries:
    return [{"id": name, "name": "something"} for name in names]


IN_21K = ("imagenet-21k.tar", tar_of_tars, "")
DTD = ("dtd-r1.0.1.tar.gz", tar_gz, "dtd/")
VAL_TAR = ("ILSVRC2012_img_val.tar", tar, "")
LAYOUTS: dict[str, tuple[tuple[str, Callable[[Files], bytes], str], Entries]] = {
    "imagenet-1k": (VAL_TAR, labelled(VAL)),
    "imagenet-1k-id": (VAL_TAR, labelled(VAL[:6])),
    "reimagenet": (VAL_TAR, [*labelled(VAL[:4]), {"id": VAL[4], "targets": [3, 9]}, {"id": VAL[5], "targets": []}]),
    "fi-imagenet-1k": (VAL_TAR, [{"id": name, "name": "ghost", "subsets": ["fine-grained"]} for name in VAL[6:]]),
    "inaturalist": (
        ("iNaturalist.tar.gz", tar_gz, "iNaturalist/"),
        named(*(f"images/{i:032x}.jpg" for i in range(4))),
    ),
    "openimage-o": (("openimage_o.zip", zipped, "openimage_o/"), [{"id": f"images/{i:016x}.jpg"} for i in range(4)]),
    "360openset": (IN_21K, of_wnids("n07751451", "n03558404")),
    "360openset-all": (IN_21K, of_wnids("n07751451", "n13032115")),
    "cood": (IN_21K, of_wnids("n01322983")),
    "imagenet-o": (
        ("imagenet-o.tar", tar, "imagenet-o/"),
        named("n01443537/jack-o'-lantern_0.99.JPEG", "n01443537/cock-of-the-rock_0.9.JPEG", "n01558993/a_1.0.JPEG"),
    ),
    "textures": (
        ("dtd-r1.0.1.tar.gz", tar_gz, "dtd/"),
        named(*(f"images/banded/banded_{i:04d}.jpg" for i in range(4))),
    ),
    "textures-5160": (DTD, named("images/woven/woven_0001.jpg", "images/a/a_2.jpg")),
    "places": (
        ("Places.tar.gz", tar_gz, "Places/"),
        named("images/b_badlands_00000792.jpg", "images/Places365_val_3.jpg"),
    ),
    "sun": (("SUN.tar.gz", tar_gz, "SUN/"), [{"id": f"images/sun_{letter}.jpg"} for letter in "abcd"]),
    "ssb-easy": (IN_21K, of_wnids("n02708711")),
    "ssb-hard": (IN_21K, of_wnids("n11622368")),
    "species": (("species_sub.zip", zipped, ""), [{"id": f"species_sub/{i}.jpg"} for i in (0, 1, 10, 2)]),
    "in1k-ood": (("imagenet10k_eccv2010.tar", tar_of_tars, ""), of_wnids("n02033882")),
    "ninco": (
        (NINCO, tar_gz, "NINCO/"),
        [
            {"id": f"{OF_NINCO}/{name}", "name": name[:3], "subsets": [name.partition("/")[0]]}
            for name in (
                "Caracal caracal caracal/Caracal caracal caracal_000_000-10896690.jpg",
                "Caracal caracal caracal/Caracal caracal caracal_001.png",
                "Caracal caracal caracal/Caracal caracal caracal_002.png",
                "high heels/high heels_003.JPG",
                "high heels/high heels_004.jpeg",
                "pseudorca_crassidens/pseudorca_crassidens_047_67902086.gif",
                "pseudorca_crassidens/pseudorca_crassidens_048.JPEG",
            )
        ],
    ),
    "clean-ood": (
        (NINCO, tar_gz, "NINCO/"),
        [
            {"id": f"{SAMPLES}/Places/Places_000_b_badlands_0.jpg", "name": "badlands", "subsets": ["Places"]},
            {"id": f"{SAMPLES}/COOD/COOD_1_n01322983_12.JPEG", "wnid": "n01322983", "subsets": ["COOD"]},
            {
                "id": f"{SAMPLES}/ImageNet_O/ImageNet_O_1_n01443537_a's_b_0.9.JPEG",
                "name": "a",
                "subsets": ["ImageNet_O"],
            },
        ],
    ),
    "ninco-unit-tests": (
        (NINCO, tar_gz, "NINCO/"),
        [
            {"id": f"{UNIT_TESTS}/{kind}/{kind}_{i}.{suffix}", "name": kind, "subsets": [kind]}
            for kind in ("uni", "black")
            for i, suffix in enumerate(("png", "jpg"))
        ],
    ),
    "imagenet-ood": (IN_21K, of_wnids("n02925009", "n03558404")),
    "imagenet-v2": (("imagenet_v2.zip", zipped, "imagenet_v2/"), labelled(["0/a.jpeg", "10/b.jpeg", "2/c.jpeg"])),
    "imagenet-r": (("imagenet-r.tar", tar, "imagenet-r/"), labelled([f"{WNIDS[393]}/misc_{i}.jpg" for i in range(3)])),
    "imagenet-c": (
        ("imagenet_c.zip", zipped, "imagenet_c/"),
        labelled([f"frost/{i}/{VAL[i]}" for i in range(1, 4)], "frost", "severity-3"),
    ),
    "imagenet-es": (
        ("ImageNet-ES.zip", zipped, "ImageNet-ES/"),
        labelled(
            [f"es-test/param_control/l1/param_{i}/{WNIDS[i]}/x {i}.JPEG" for i in range(3)], "param_control", "l1"
        ),
    ),
}
KINDS = {"gz": "gzip", "zip": "zip", "tar": "tar"}


def test_every_dataset_that_comes_from_elsewhere_is_in_this_test():
    shelved = {
        name
        for name in registry.names("datasets")
        if isinstance(cls := registry.load("dataset", name), type) and issubclass(cls, ShelvedDataset)
    }
    assert shelved == {*LAYOUTS, "imagenet-1k-train"}


@pytest.fixture(scope="module")
def server():
    """Small archives of all sets; sets that share an archive get one of their own each."""
    files = {}
    for name, ((archive, pack, top), entries) in LAYOUTS.items():
        files[f"{name}/{archive}"] = pack({f"{top}{e['id']}": picture_file(e["id"]) for e in entries})
    train = {
        f"{wnid}/{wnid}_{n}.JPEG": picture_file(f"{wnid}{n}") for wnid, count in TRAIN.items() for n in range(count)
    }
    files["imagenet-1k-train/ILSVRC2012_img_train.tar"] = tar_of_tars(train)
    with mirror(files) as running:
        yield running


@pytest.fixture(scope="module")
def home(server, tmp_path_factory):
    """A data home, and the manifests of all stand-ins."""
    folder = tmp_path_factory.mktemp("every")
    patch = pytest.MonkeyPatch()
    patch.setenv("FIOOD_HOME", str(folder / "home"))
    patch.setenv("FIOOD_TEST_MANIFESTS", str(folder))
    for name, ((archive, _, _), entries) in LAYOUTS.items():
        remote = {"name": archive, "urls": [server(f"{name}/{archive}")], "kind": KINDS[archive.rpartition(".")[2]]}
        remote["nested"] = name in ("in1k-ood", *(n for n, (layout, _) in LAYOUTS.items() if layout is IN_21K))
        (folder / f"{name}.json").write_text(json.dumps(manifest(entries, archive=remote)))
    name = "ILSVRC2012_img_train.tar"
    remote = {"name": name, "urls": [server(f"imagenet-1k-train/{name}")], "kind": "tar", "nested": True}
    (folder / "imagenet-1k-train.json").write_text(json.dumps({"classes": TRAIN, "archive": remote}))
    yield folder
    patch.undo()


@pytest.fixture(autouse=True)
def may_go_offline(monkeypatch):
    """Let a command forbid the network, for the rest of its test alone."""
    for switch in offline.SWITCHES:
        monkeypatch.setenv(switch, "")


def spec(name: str) -> str:
    return f"{HERE}/standins.py:standin(of='{name}')"


def call(command: Any, *arguments: str, ok: bool = True) -> Result:
    result = CliRunner().invoke(command, arguments)
    assert (result.exit_code == 0) is ok, f"{result.output}\n{result.exception!r}"
    return result


@pytest.mark.parametrize("name", [*LAYOUTS, "imagenet-1k-train"])
def test_it_is_prepared_and_verified(home, name):
    result = call(data.command, "prepare", spec(name))
    count = sum(TRAIN.values()) if name not in LAYOUTS else len(LAYOUTS[name][1])
    assert f"is ready: {count:,} pictures" in result.output
    assert "is as it should be" in call(data.command, "verify", spec(name)).output
    dataset = Request.parse("dataset", spec(name)).create()
    assert not dataset.view().canonical
    root = dataset.root
    with pytest.raises(DataError):
        fiood.dataset(name, root=root).view()
    first = dataset.open(dataset.view().ids[0])
    first.write_bytes(b"")
    assert "empty: " in call(data.command, "verify", spec(name), ok=False).output
    first.unlink()
    assert "missing: " in call(data.command, "verify", spec(name), ok=False).output
    call(data.command, "prepare", spec(name), "--offline")
    call(data.command, "verify", spec(name))


def test_odd_pictures_are_among_them(home):
    modes = set()
    for _, entries in LAYOUTS.values():
        for entry in entries:
            with Image.open(io.BytesIO(picture_file(entry["id"]))) as picture:
                modes.add((picture.format, picture.mode))
    assert {("GIF", "P"), ("JPEG", "CMYK"), ("JPEG", "RGB"), ("PNG", "I;16"), ("PNG", "RGBA")} <= modes


def test_all_of_them_run(home, tmp_path):
    sets = [name for name in LAYOUTS if name not in ("imagenet-1k",)]
    options = [option for name in sets for option in ("--ood", f"{name}={spec(name)}")]
    for name in (*LAYOUTS, "imagenet-1k-train"):
        call(data.command, "prepare", spec(name))
    result = call(
        FIOOD_RUN,
        *("--backbone", f"{HERE}/standins.py:Net", "--detector", f"msp,{HERE}/tiny.py:Largest"),
        *("--id", spec("imagenet-1k"), "--train", spec("imagenet-1k-train"), *options),
        *("--output", str(tmp_path / "out"), "--device", "cpu", "--offline"),
    )
    found = results.load(tmp_path / "out")
    assert not found.failed, result.output
    rows = {row["ood"]: row for row in found.rows if row["subset"] == "all" and row["detector"] == "msp"}
    assert {name: row["n_ood"] for name, row in rows.items()} == {name: len(LAYOUTS[name][1]) for name in sets}
    assert not any(row["canonical"] or row["publishable"] for row in found.rows)
    assert {row["subset"] for row in found.rows if row["ood"] == "ninco"} == {
        "all",
        "Caracal caracal caracal",
        "high heels",
        "pseudorca_crassidens",
    }


def test_a_suite_asks_for_classes_means_and_subsets_and_the_report_shows_which(home, tmp_path):
    ood = {
        "ninco": {"dataset": spec("ninco"), "aggregate": ["pooled", "class-mean"]},
        "by-source": {"dataset": spec("clean-ood"), "aggregate": "subsets"},
        "by-class": {"dataset": spec("imagenet-ood"), "aggregate": ["classes"]},
        "unlabelled": {"dataset": spec("sun"), "aggregate": "class-mean"},
    }
    for name in ("imagenet-1k", "ninco", "clean-ood", "imagenet-ood", "sun"):
        call(data.command, "prepare", spec(name))
    asked = {
        "name": "aggregates",
        "benchmark": {"id": spec("imagenet-1k"), "ood": ood},
        "backbones": [f"{HERE}/standins.py:Net"],
        "detectors": ["msp"],
        "settings": {"device": "cpu"},
    }
    (tmp_path / "suite.yaml").write_text(json.dumps(asked))
    result = call(FIOOD_RUN, str(tmp_path / "suite.yaml"), "--output", str(tmp_path / "out"), ok=False)
    found = results.load(tmp_path / "out")
    assert {(row["ood"], row["subset"], row["aggregation"]) for row in found.rows} == {
        ("ninco", "all", "pooled"),
        ("ninco", "all", "class-mean"),
        ("by-source", "Places", "pooled"),
        ("by-source", "COOD", "pooled"),
        ("by-source", "ImageNet_O", "pooled"),
        ("by-class", "n02925009", "pooled"),
        ("by-class", "n03558404", "pooled"),
    }
    (failed,) = found.failed
    assert "'class-mean' is asked for, and its pictures have neither labels nor subsets" in failed["reason"]
    assert "aggregate" in (tmp_path / "out" / "suite.yaml").read_text(), result.output
    report = (tmp_path / "out" / "report.html").read_text()
    assert "ninco (class-mean)" in report
    assert "by-source: Places" in report
    asked["benchmark"]["ood"]["ninco"]["aggregate"] = ["class-meen"]
    (tmp_path / "suite.yaml").write_text(json.dumps(asked))
    with pytest.raises(SuiteError, match="aggregate names some of pooled, class-mean"):
        suites.load(tmp_path / "suite.yaml")
