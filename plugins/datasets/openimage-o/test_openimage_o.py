from collections import Counter

import pytest
from fiood_dataset_openimage_o import OpenImageO

from fiood_core.lists import image_list
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(OpenImageO(tmp_path), [{"id": "images/000d5efd9500e718.jpg", "subsets": ["openood-test"]}]))


@pytest.mark.shared
def test_vims_list_is_openoods_two_lists_together(lists):
    entries = OpenImageO(lists=lists).listed
    ids = [entry.id for entry in entries]
    assert len(ids) == len(set(ids)) == 17_632
    assert ids == sorted(ids)
    assert Counter(entry.subsets[0] for entry in entries) == {"openood-test": 15_869, "openood-val": 1_763}
    for part in ("test", "val"):
        theirs = {path.removeprefix("openimage_o/") for path, _ in image_list(
            lists / f"openood_v1.5/{part}_openimage_o.txt"
        )}  # fmt: skip
        assert {entry.id for entry in entries if entry.subsets == (f"openood-{part}",)} == theirs
