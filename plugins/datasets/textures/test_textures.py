from collections import Counter

import pytest
from fiood_dataset_textures import DROPPED, Textures, Textures5160

from fiood_core.lists import image_list
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


@pytest.mark.parametrize("dataset", [Textures, Textures5160])
def test_a_stand_in_conforms(dataset, tmp_path):
    check_dataset(stand_in(dataset(tmp_path), [{"id": "images/banded/banded_0002.jpg", "name": "banded"}]))


@pytest.mark.shared
def test_all_47_classes_or_the_43_that_vim_and_openood_keep(lists):
    every, kept = Textures(lists=lists).listed, Textures5160(lists=lists).listed
    for entries, classes in ((every, 47), (kept, 43)):
        per_class = Counter(entry.concept.name for entry in entries)
        assert len(per_class) == classes
        assert set(per_class.values()) == {120}
    assert {e.id for e in every} - {e.id for e in kept} == {e.id for e in every if e.concept.name in DROPPED}
    theirs = {path.replace("texture/", "images/") for path, _ in image_list(lists / "openood_v1.5/test_textures.txt")}
    assert {entry.id for entry in kept} == theirs
