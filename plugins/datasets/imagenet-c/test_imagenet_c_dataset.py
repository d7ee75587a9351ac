import re
from collections import Counter

import pytest
from fiood_dataset_imagenet_c import ImageNetC

from fiood_core import imagenet
from fiood_core.lists import image_list
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in

ENTRY = {"id": "frost/3/ILSVRC2012_val_00000007.JPEG", "targets": [334], "subsets": ["frost", "severity-3"]}


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(ImageNetC(tmp_path), [ENTRY]))


def test_the_authors_class_folders_are_found(tmp_path):
    dataset = stand_in(ImageNetC(tmp_path), [ENTRY])
    theirs = tmp_path / "weather/frost/3" / imagenet.wnids()[334] / "ILSVRC2012_val_00000007.JPEG"
    theirs.parent.mkdir(parents=True)
    (tmp_path / ENTRY["id"]).rename(theirs)
    assert dataset.open(ENTRY["id"]) == theirs


@pytest.mark.shared
def test_the_list_is_15_corruptions_at_5_severities_of_other_pictures_than_the_id_split(lists):
    entries = ImageNetC(lists=lists).listed
    kinds = Counter(entry.subsets[0] for entry in entries)
    severities = Counter(entry.subsets[1] for entry in entries)
    assert len(kinds) == 15
    assert (min(kinds.values()), max(kinds.values())) == (630, 719)
    assert len(severities) == 5
    assert all(1900 < count < 2100 for count in severities.values())
    pictures = {re.search(r"val_(\d+)", entry.id)[1] for entry in entries}
    assert len(pictures) == 10_000
    tuned = {re.search(r"val_(\d+)", path)[1] for path, _ in image_list(lists / "openood_v1.5/val_imagenet.txt")}
    assert not pictures & tuned
