import json
from collections import Counter

import pytest
from fiood_dataset_ssb_easy import SSBEasy

from fiood_core import imagenet
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(SSBEasy(tmp_path), [{"id": "n02708711/n02708711_1.JPEG", "wnid": "n02708711"}]))


@pytest.mark.shared
def test_the_list_has_50_pictures_of_a_thousand_classes(lists):
    entries = SSBEasy(lists=lists).listed
    per_class = Counter(entry.concept.wnid for entry in entries)
    assert len(entries) == 50_000
    assert len(per_class) == 1000
    assert set(per_class.values()) == {50}
    assert not set(per_class) & set(imagenet.wnids())


@pytest.mark.shared
def test_both_halves_have_99000_pictures_the_first_fifty_by_name_of_their_classes(lists):
    files = json.loads((lists / "ssb_val_files.json").read_text())
    names = [name for of_class in files.values() for name in of_class]
    assert len(files) == 1980
    assert len(names) == 99_000
    assert round(100 * sum("_1" in name for name in names) / len(names), 2) == 99.94
