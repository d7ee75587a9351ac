from collections import Counter

import pytest
from fiood_dataset_ninco_unit_tests import NINCOUnitTests

from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    kinds = ("uni", "black")
    entries = [
        {"id": f"NINCO_OOD_unit_tests/{kind}/{kind}_000.{suffix}", "name": kind, "subsets": [kind]}
        for kind, suffix in zip(kinds, ("png", "jpg"), strict=True)
    ]
    check_dataset(stand_in(NINCOUnitTests(tmp_path), entries))


@pytest.mark.shared
def test_the_list_has_400_pictures_of_17_kinds_about_half_of_them_jpegs(lists):
    entries = NINCOUnitTests(lists=lists).listed
    assert set(Counter(entry.subsets for entry in entries).values()) == {400}
    assert Counter(entry.id.rpartition(".")[2] for entry in entries) == {"jpg": 3431, "png": 3369}
    jpegs = Counter(entry.subsets[0] for entry in entries if entry.id.endswith(".jpg"))
    assert len(jpegs) == 17
    assert all(150 < count < 250 for count in jpegs.values())
