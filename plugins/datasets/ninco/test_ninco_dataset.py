from collections import Counter
from pathlib import PurePosixPath

import pytest
from fiood_dataset_ninco import NINCO

from fiood_core.lists import image_list
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in

FOLDER = "NINCO_OOD_classes"
ENTRIES = [
    {
        "id": f"{FOLDER}/Caracal caracal caracal/Caracal caracal caracal_000.jpg",
        "name": "caracal",
        "subsets": ["caracal"],
    },
    {"id": f"{FOLDER}/pseudorca_crassidens/pseudorca_crassidens_047.gif", "name": "whale", "subsets": ["whale"]},
    {"id": f"{FOLDER}/high heels/high heels_001.png", "name": "high heels", "subsets": ["high heels"]},
]


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(NINCO(tmp_path), ENTRIES))


def test_openoods_copies_with_underscores_are_found(tmp_path):
    dataset = stand_in(NINCO(tmp_path / "original"), ENTRIES)
    for entry in ENTRIES:
        renamed = tmp_path / "copy" / entry["id"].replace(f"{FOLDER}/", "ninco/").replace(" ", "_")
        renamed.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "original" / entry["id"]).rename(renamed)
    copy = NINCO(tmp_path / "copy")
    copy._manifest = dataset._manifest
    assert not copy.verify()
    assert copy.open(ENTRIES[0]["id"]).name == "Caracal_caracal_caracal_000.jpg"


@pytest.mark.shared
def test_the_list_is_the_papers(lists):
    entries = NINCO(lists=lists).listed
    assert len(entries) == 5879
    per_class = Counter(entry.subsets for entry in entries)
    assert len(per_class) == 64
    assert (min(per_class.values()), max(per_class.values())) == (31, 176)
    assert per_class["hippopus_hippopus",] == 31
    assert per_class["amphiuma_means",] == 176
    suffixes = Counter(PurePosixPath(entry.id).suffix for entry in entries)
    assert suffixes == {".jpg": 3859, ".jpeg": 1229, ".png": 479, ".JPG": 214, ".JPEG": 97, ".gif": 1}
    assert sum(" " in entry.id for entry in entries) == 199
    assert all(entry.concept is not None and entry.concept.name for entry in entries)
    assert len({entry.concept for entry in entries}) == 64


@pytest.mark.shared
def test_openoods_list_has_the_same_pictures_under_its_own_names(lists):
    dataset = NINCO(lists=lists)
    ours = {alias.replace(" ", "_") for entry in dataset.listed for alias in dataset.aliases(entry.id)}
    assert ours == {path for path, _ in image_list(lists / "openood_v1.5" / "test_ninco.txt")}
