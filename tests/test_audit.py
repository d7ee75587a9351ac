"""The audit finds related classes and equal pictures, and says what they cost."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageEnhance

import fiood_core as fiood
from fiood_core import Concept, Dataset, Info, View, imagenet, wordnet
from fiood_core.audit import ANY, IN_ID, REPEATED, audit
from fiood_core.cli import data
from fiood_core.errors import DataError
from fiood_core.lookalikes import between, prints, within
from fiood_core.overlap import class_overlap


@pytest.fixture(scope="module")
def words():
    try:
        return wordnet.load()
    except DataError as error:
        pytest.skip(str(error))


# -- classes -------------------------------------------------------------------------------------------------------

TABBY, CAT, DOG, PUG, ENTITY = "n02123045", "n02121808", "n02084071", "n02110958", "n00001740"


def relations(concepts, ids, words):
    found = class_overlap(Counter(dict.fromkeys(concepts, 1)), ids, words)
    return {(overlap.concept.name or overlap.wnid, overlap.relation): overlap.id_wnids for overlap in found.found}


def test_classes_above_below_and_at_an_id_class_are_told(words):
    found = relations([Concept("", w) for w in (CAT, TABBY, PUG, ENTITY)], [TABBY, DOG], words)
    assert found == {
        (CAT, "hypernym"): (TABBY,),
        (TABBY, "same"): (TABBY,),
        (PUG, "hyponym"): (DOG,),
        (ENTITY, "hypernym"): (DOG, TABBY),
    }


def test_another_thing_of_the_same_name_is_a_synonym(words):
    crane, bird = "n03126707", "n02012849"
    assert words.synonyms(bird)[0] == "crane"
    assert relations([Concept("", bird)], [crane], words) == {(bird, "synonym"): (crane,)}


def test_a_name_is_taken_for_its_only_synset_and_else_for_none(words):
    found = class_overlap({Concept("tabby"): 2, Concept("Tinca_tinca"): 3, Concept("xyzzy"): 1}, [TABBY], words)
    assert found.classes == 3
    assert {concept.name for concept in found.unresolved} == {"xyzzy", "tabby"}  # a tabby is a cat of two kinds
    assert words.called("Tinca_tinca") == ["n01440764"]
    assert len(words.called("cock of the rock Rupicola peruviana")) == 1
    assert len(words.called("cock of the rock")) == 2


def spec_counts(lists):
    splits = json.loads((lists / "ssb_splits.json").read_text())["unknown_classes"]
    with (lists / "NINCO_popular_datasets_subsamples.csv").open() as file:
        rows = [row["image_location"] for row in csv.DictReader(file) if row["class"] == "COOD"]
    yield "SSB easy", splits["Easy"], 134, 0
    yield "SSB hard", splits["Hard"], 32, 160
    yield "360OpenSet", [line[:9] for line in (lists / "osdn_360_synsets.txt").read_text().splitlines()], 21, 0
    yield "COOD", [re.search(r"_(n\d{8})_\d+\.JPEG$", path)[1] for path in rows], 0, 0
    yield "IN1k-OOD", (lists / "pascl_in1k_ood_wnids.txt").read_text().split(), 138, 131
    yield "ImageNet-OOD", [line[:9] for line in (lists / "imagenetood.txt").read_text().splitlines()], 2, 1


@pytest.mark.shared
def test_the_papers_sets_have_the_hypernyms_and_hyponyms_that_are_known(lists, words):
    for name, wnids, hypernyms, hyponyms in spec_counts(lists):
        found = class_overlap(Counter(Concept("", wnid) for wnid in wnids), imagenet.wnids(), words)
        assert not found.unresolved
        assert (name, len(found.of("hypernym")), len(found.of("hyponym"))) == (name, hypernyms, hyponyms)
        assert not found.of("same")


@pytest.mark.shared
def test_in1k_ood_is_animals_57_of_them_dogs_and_five_cood_classes_are_persons(lists, words):
    sets = {name: set(wnids) for name, wnids, _, _ in spec_counts(lists)}
    animal, person = "n00015388", "n00007846"
    assert all(animal in words.ancestors(wnid) for wnid in sets["IN1k-OOD"])
    assert sum(DOG in {wnid, *words.ancestors(wnid)} for wnid in sets["IN1k-OOD"]) == 57
    assert {wnid for wnid in sets["COOD"] if person in words.ancestors(wnid)} == {
        "n09838621", "n09980985", "n10146104", "n10187491", "n10568358",
    }  # fmt: skip
    ssb = json.loads((lists / "ssb_splits.json").read_text())["unknown_classes"]["Hard"]
    assert sum(person in words.ancestors(wnid) for wnid in ssb) == 5


def as_file_name(text):
    return re.sub(r"[^0-9A-Za-z]+", "_", text)


@pytest.mark.slow
@pytest.mark.shared
def test_names_of_imagenet_o_are_synsets_of_imagenet_21k_and_none_of_imagenet_1k(lists):
    timm = pytest.importorskip("timm")
    lemmas = Path(timm.__file__).parent / "data" / "_info" / "imagenet_synset_to_lemma.txt"
    in_21k = set((lemmas.parent / "imagenet22k_synsets.txt").read_text().split())
    called = {}
    for line in lemmas.read_text().splitlines():
        wnid, lemma = line.split("\t")
        if wnid in in_21k:
            called.setdefault(as_file_name(lemma), set()).add(wnid)
    names = {concept.name for concept in fiood.dataset("imagenet-o", lists=lists).concepts()}
    fitting = [called.get(as_file_name(name), set()) for name in names]
    assert Counter(min(len(wnids), 2) for wnids in fitting) == {1: 1522, 2: 95}
    of_imagenet_1k = [wnids for wnids in fitting if wnids & set(imagenet.wnids())]
    assert len(of_imagenet_1k) == 4  # bassinet, cup, radiator, whistle: each has other synsets too
    assert min(map(len, of_imagenet_1k)) > 1


# -- pictures ------------------------------------------------------------------------------------------------------


class Folder(Dataset):
    """The pictures of a folder; every one shows what its name begins with."""

    info = Info(title="folder")

    def __init__(self, root, class_wnids=None):
        self.root, self.class_wnids = root, class_wnids

    def view(self):
        ids = sorted(path.name for path in self.root.iterdir())
        return View(str(self.root), ids, concepts=[Concept(name.partition("-")[0]) for name in ids])

    def open(self, image_id):
        return self.root / image_id


def scene(seed):
    """Soft blots of colour, as unlike one another as photos are."""
    blots = np.random.default_rng(seed).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    return Image.fromarray(blots).resize((150 + seed, 120), Image.Resampling.BICUBIC)


@pytest.fixture
def folders(tmp_path):
    """Pictures of an ID and an OOD set, some of them the same."""
    made = [Image.new("RGB", (64, 48)), *map(scene, range(8))]
    for name in ("id", "ood"):
        (tmp_path / name).mkdir()
    for number in range(1, 5):
        made[number].save(tmp_path / "id" / f"x-{number}.png")
    ood = tmp_path / "ood"
    (ood / "tench-copy.png").write_bytes((tmp_path / "id" / "x-1.png").read_bytes())
    half = made[2].resize((made[2].width // 2, made[2].height // 2))
    ImageEnhance.Brightness(half).enhance(1.05).save(ood / "tench-likeness.jpg", quality=60)
    made[6].save(ood / "q-one.png")
    made[6].save(ood / "q-two.png")
    made[7].save(ood / "q-other.png")
    made[0].save(ood / "q-black.png")
    Image.new("RGB", (50, 50), (1, 1, 1)).save(ood / "q-also black.png")
    (ood / "q-zz broken.png").write_bytes(b"no picture")
    return tmp_path / "id", ood


def test_copies_and_likenesses_are_found_and_plain_pictures_are_not_taken_for_each_other(folders):
    inside, outside = map(Folder, folders)
    first, second = (prints(dataset, dataset.view().ids) for dataset in (inside, outside))
    pairs = {(pair.first, pair.second): pair.exact for pair in between(first, second)}
    assert pairs == {("x-1.png", "tench-copy.png"): True, ("x-2.png", "tench-likeness.jpg"): False}
    assert [(pair.first, pair.second, pair.exact) for pair in within(second)] == [("q-one.png", "q-two.png", True)]
    assert second.plain.sum() == 2
    assert [image_id for image_id, _ in second.unreadable] == ["q-zz broken.png"]


def test_what_is_found_is_flagged_for_its_reason(folders, words):
    inside, outside = folders
    found = audit({"id": Folder(inside, ["n01440764"])}, {"ood": Folder(outside)})
    (ood,) = [each for each in found.sets if each.name == "ood"]
    assert ood.flags == {
        "same": ["tench-copy.png", "tench-likeness.jpg"],
        IN_ID: ["tench-copy.png", "tench-likeness.jpg"],
        REPEATED: ["q-two.png"],
    }
    text = found.text()
    assert "id and ood share: 1 pairs byte for byte, 1 that look the same" in text
    assert "same of an ID class" in text
    json.dumps(found.data())


def test_id_classes_that_are_no_synsets_are_not_compared(folders):
    inside, outside = folders
    (_, ood) = audit({"id": Folder(inside)}, {"ood": Folder(outside)}).sets
    assert "no WordNet synsets" in ood.no_classes


@pytest.mark.slow
@pytest.mark.shared
def test_recompressed_and_smaller_photos_are_recognised_and_other_photos_are_not(shared, tmp_path):
    paths = sorted((shared / "data" / "imagenet_sample").rglob("*.*"))
    photos = [path for path in paths if path.suffix.lower() in (".jpg", ".jpeg")][:60]
    (tmp_path / "original").mkdir()
    (tmp_path / "changed").mkdir()
    for number, path in enumerate(photos):
        with Image.open(path) as opened:
            photo = opened.convert("RGB")
        photo.save(tmp_path / "original" / f"{number:03d}.png")
        small = photo.resize((photo.width // 2, photo.height // 2))
        small.save(tmp_path / "changed" / f"{number:03d}.jpg", quality=50)
    first, second = (
        prints(folder, folder.view().ids) for folder in map(Folder, (tmp_path / "original", tmp_path / "changed"))
    )
    pairs = {(pair.first[:3], pair.second[:3]) for pair in between(first, second)}
    right = {pair for pair in pairs if pair[0] == pair[1]}
    assert len(right) >= 0.98 * len(photos)
    assert not pairs - right


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.shared
def test_classes_are_compared_from_the_lists_alone(lists, words, monkeypatch, tmp_path):
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path))
    names = ["ssb-hard", "in1k-ood", "imagenet-ood", "species"]
    options = [f"{name}={name}(lists='{lists}')" for name in names]
    result = CliRunner().invoke(data.command, ["audit", f"imagenet-1k(lists='{lists}')", *options])
    assert result.exit_code == 0, result.output
    assert "hypernym of an ID class: 32 classes, 1,600 pictures" in result.output
    assert "hyponym of an ID class: 160 classes, 8,000 pictures" in result.output
    assert "hypernym of an ID class: 138 classes, 6,900 pictures" in result.output
    assert "hyponym of an ID class: 1 classes, 50 pictures" in result.output
    assert "classes: the set's pictures carry no labels" in result.output
    assert "not looked at: ssb-hard: no pictures at" in result.output


def test_metrics_are_given_with_and_without_the_flagged_pictures(folders, tmp_path):
    from importlib import import_module

    inside, outside = folders
    (outside / "q-zz broken.png").unlink()
    (tmp_path / "labels.csv").write_text("image,label\n" + "".join(f"x-{i}.png,{i - 1}\n" for i in range(1, 5)))
    standins = Path(__file__).parent / "standins.py"
    run = [
        *("--backbone", f"{standins}:Net", "--detector", "msp", "--id", f"folder:{inside}"),
        *("--ood", f"mine=folder:{outside}", "--output", str(tmp_path / "out"), "--store", str(tmp_path / "store")),
    ]
    result = CliRunner().invoke(import_module("fiood_core.cli._run").command, run)
    assert (tmp_path / "out" / "run.json").exists(), result.output
    command = ["audit", f"folder:{inside}", f"mine=folder:{outside}", "--results", str(tmp_path / "out")]
    result = CliRunner().invoke(data.command, [*command, "--output", str(tmp_path / "audit.json")])
    assert result.exit_code == 0, f"{result.output} {result.exception}"
    found = json.loads((tmp_path / "audit.json").read_text())["metrics"]
    by_reason = {row["reason"]: row for row in found}
    assert by_reason[IN_ID]["whole"]["n_ood"] == 7
    assert by_reason[IN_ID]["left"]["n_ood"] == 5
    assert by_reason[REPEATED]["left"]["n_ood"] == 6
    assert by_reason[ANY]["left"]["n_ood"] == 4
    scores = fiood_scores(tmp_path / "out")
    flagged = {"tench-copy.png", "tench-likeness.jpg"}
    rest = np.array([value for image_id, value in scores["mine"] if image_id not in flagged])
    expected = fiood.evaluate(np.array([value for _, value in scores["id"]]), rest)
    assert by_reason[IN_ID]["left"]["auroc"] == expected.auroc
    assert "7 → 5" in result.output


def fiood_scores(directory):
    from fiood_core import results

    found = results.load(directory)
    inside, outside = found.scores(next(row for row in found.rows if row["subset"] == "all"))
    return {"id": zip(inside.ids, inside.values, strict=True), "mine": zip(outside.ids, outside.values, strict=True)}


def test_hashes_are_of_bits_and_do_not_depend_on_size(tmp_path):
    picture = scene(0)
    for name, made in (("a.png", picture), ("b.png", picture.resize((picture.width * 2, picture.height * 2)))):
        file = io.BytesIO()
        made.save(file, "PNG")
        (tmp_path / name).write_bytes(file.getvalue())
    found = prints(Folder(tmp_path), ["a.png", "b.png"])
    assert found.hashes.shape == (2, 64)
    assert set(np.unique(found.hashes)) == {-1, 1}
    (pair,) = within(found)
    assert pair.distance <= 2
