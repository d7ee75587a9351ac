import json
import re
from collections import Counter, defaultdict

import pytest
from fiood_dataset_clean_ood import SOURCES, CleanOOD, concept

from fiood_core import Concept
from fiood_core.lists import image_list
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in

FOLDER = "NINCO_popular_datasets_subsamples"
IN_21K = ("360OpenSet", "ImageNet_1k_OOD_400_ood", "COOD", "SSB_hard", "SSB_easy")


def test_a_stand_in_conforms(tmp_path):
    entries = [
        {"id": f"{FOLDER}/Places/Places_000_b_badlands_00000792.jpg", "name": "badlands", "subsets": ["Places"]},
        {"id": f"{FOLDER}/COOD/COOD_17_n01322983_12.JPEG", "wnid": "n01322983", "subsets": ["COOD"]},
    ]
    check_dataset(stand_in(CleanOOD(tmp_path), entries))


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("Places_000_b_badlands_00000792.jpg", "Places", Concept("badlands")),
        ("Places_001_Places365_val_00000382.jpg", "Places", None),
        ("ImageNet_O_000_n01443537_cardinal_tetra_0.99767953.JPEG", "ImageNet_O", Concept("cardinal tetra")),
        ("SSB_hard_000_n01322983_12.JPEG", "SSB_hard", Concept("", "n01322983")),
        ("OpenImage_O_000_0010a3d096cd57b2.jpg", "OpenImage_O", None),
    ],
)
def test_what_a_picture_shows_stands_in_its_name(name, source, expected):
    assert concept(f"{FOLDER}/{source}/{name}", source) == expected


@pytest.fixture(scope="module")
def entries(lists):
    return CleanOOD(lists=lists).listed


@pytest.fixture(scope="module")
def wnids(entries):
    """Distinct WordNet ids of the pictures of each source."""
    found = defaultdict(set)
    for entry in entries:
        if entry.concept is not None and entry.concept.wnid:
            found[entry.subsets[0]].add(entry.concept.wnid)
    return found


@pytest.fixture(scope="module")
def originals(entries):
    """Names of the pictures of each source, as they were before NINCO's authors renamed them."""
    found = defaultdict(set)
    for entry in entries:
        source = entry.subsets[0]
        found[source].add(re.sub(rf"^{re.escape(source)}_\d+_", "", entry.id.rpartition("/")[2]))
    return found


@pytest.mark.shared
def test_the_list_has_the_papers_counts_by_source(entries):
    assert len(entries) == len({entry.id for entry in entries}) == 2715
    assert Counter(entry.subsets[0] for entry in entries) == SOURCES
    labelled = {entry.subsets[0] for entry in entries if entry.concept is not None}
    assert labelled == set(SOURCES) - {"OpenImage_O", "iNaturalist_OOD_Plants"}


@pytest.mark.shared
def test_pictures_of_imagenet_21k_are_one_of_each_class(wnids):
    assert {source: len(wnids[source]) for source in IN_21K} == {source: SOURCES[source] for source in IN_21K}


@pytest.mark.shared
def test_its_classes_join_the_full_sets_and_its_files_mostly_do_not(lists, wnids, originals):
    splits = json.loads((lists / "ssb_splits.json").read_text())["unknown_classes"]
    files = json.loads((lists / "ssb_val_files.json").read_text())
    osdn = {line.split()[0] for line in (lists / "osdn_360_synsets.txt").read_text().splitlines()}
    pascl = set((lists / "pascl_in1k_ood_wnids.txt").read_text().split())
    assert wnids["360OpenSet"] <= osdn
    assert wnids["ImageNet_1k_OOD_400_ood"] <= pascl
    assert wnids["SSB_easy"] <= set(splits["Easy"])
    assert wnids["SSB_hard"] - set(splits["Hard"]) == {"n10134178"}
    for source, split, shared_files in (("SSB_easy", "Easy", 8), ("SSB_hard", "Hard", 13)):
        named = {name for wnid in splits[split] for name in files[wnid]}
        assert len(originals[source] & named) == shared_files


@pytest.mark.shared
def test_its_other_pictures_are_pictures_of_the_full_sets(lists, originals):
    def names(path):
        return {image.rpartition("/")[2] for image, _ in image_list(lists / path)}

    tuned_on, test = names("openood_v1.5/val_openimage_o.txt"), names("openood_v1.5/test_openimage_o.txt")
    assert len(originals["OpenImage_O"] & tuned_on) == 41
    assert len(originals["OpenImage_O"] & test) == 327
    assert originals["iNaturalist_OOD_Plants"] <= names("openood_v1.5/test_inaturalist.txt")
    assert originals["Textures"] <= names("openood_v1.5/test_textures.txt")
    assert originals["Places"] <= names("mos_places.txt")
    in_imagenet_o = {image.split("/", 1)[1].replace("/", "_") for image, _ in image_list(
        lists / "openood_v1.5/test_imagenet_o.txt"
    )}  # fmt: skip
    assert originals["ImageNet_O"] <= in_imagenet_o


@pytest.mark.shared
def test_textures_are_of_42_classes_and_imagenet_o_of_149_folders(originals):
    assert len({re.sub(r"_\d+\.jpg$", "", name) for name in originals["Textures"]}) == 42
    assert len({name[:9] for name in originals["ImageNet_O"]}) == 149
