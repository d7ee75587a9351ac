import json
from collections import Counter

import pytest
from fiood_dataset_imagenet_ood import ImageNetOOD

from fiood_core import imagenet
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(ImageNetOOD(tmp_path), [{"id": "n02925009/n02925009_2846.JPEG", "wnid": "n02925009"}]))


@pytest.mark.shared
def test_the_list_has_637_classes_nearly_all_of_50_pictures(lists):
    entries = ImageNetOOD(lists=lists).listed
    per_class = Counter(entry.concept.wnid for entry in entries)
    assert len(entries) == 31_802
    assert Counter(per_class.values()) == {50: 599, 49: 30, 48: 6, 47: 2}
    assert len(per_class) == 637
    assert not set(per_class) & set(imagenet.wnids())
    assert round(100 * sum("_1" in entry.id for entry in entries) / len(entries)) == 26


@pytest.mark.shared
def test_it_shares_classes_with_other_sets_but_no_picture_with_ssb(lists):
    entries = ImageNetOOD(lists=lists).listed
    wnids = {entry.concept.wnid for entry in entries}
    splits = json.loads((lists / "ssb_splits.json").read_text())["unknown_classes"]
    files = json.loads((lists / "ssb_val_files.json").read_text())
    osdn = {line.split()[0] for line in (lists / "osdn_360_synsets.txt").read_text().splitlines()}
    assert (len(wnids & set(splits["Easy"])), len(wnids & set(splits["Hard"])), len(wnids & osdn)) == (113, 29, 33)
    assert not {entry.id.rpartition("/")[2] for entry in entries} & {name for names in files.values() for name in names}
