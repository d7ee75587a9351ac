from collections import Counter

import pytest
from fiood_dataset_places import Places, scene

from fiood_core import Concept
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(Places(tmp_path), [{"id": "images/b_badlands_00000792.jpg", "name": "badlands"}]))


def test_the_scene_stands_in_the_name():
    assert scene("images/w_wheat_field_00000792.jpg") == Concept("wheat field")
    assert scene("images/Places365_val_00000382.jpg") is None


@pytest.mark.shared
def test_fifty_scenes_and_178_pictures_without_one(lists):
    entries = Places(lists=lists).listed
    scenes = Counter(entry.concept.name for entry in entries if entry.concept is not None)
    assert len(entries) == 10_000
    assert len(scenes) == 50
    assert sum(scenes.values()) == 9_822
    assert (min(scenes.values()), max(scenes.values())) == (173, 229)
    assert sum("Places365_val_" in entry.id for entry in entries) == 178
