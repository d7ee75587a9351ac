from collections import Counter

import pytest
from fiood_dataset_ssb_hard import SSBHard

from fiood_core import imagenet
from fiood_core.lists import image_list
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(SSBHard(tmp_path), [{"id": "n11622368/n11622368_1.JPEG", "wnid": "n11622368"}]))


@pytest.mark.shared
def test_the_list_has_50_pictures_of_980_classes_and_is_openoods(lists):
    entries = SSBHard(lists=lists).listed
    per_class = Counter(entry.concept.wnid for entry in entries)
    assert len(entries) == 49_000
    assert len(per_class) == 980
    assert set(per_class.values()) == {50}
    assert not set(per_class) & set(imagenet.wnids())
    theirs = {path.removeprefix("ssb_hard/") for path, _ in image_list(lists / "openood_v1.5/test_ssb_hard.txt")}
    assert {entry.id for entry in entries} == theirs
