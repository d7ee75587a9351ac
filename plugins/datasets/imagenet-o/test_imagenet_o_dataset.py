from collections import Counter

import pytest
from fiood_dataset_imagenet_o import ImageNetO

from fiood_core import Concept, imagenet
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in

IDS = ["n01443537/jack-o'-lantern_mushroom_0.9983499.JPEG", "n01443537/cock-of-the-rock_0.95.JPEG"]


def test_a_stand_in_with_apostrophes_conforms(tmp_path):
    check_dataset(stand_in(ImageNetO(tmp_path), [{"id": image, "name": "x"} for image in IDS]))


@pytest.mark.shared
def test_what_a_picture_shows_is_its_file_name_not_its_folder(lists):
    entries = ImageNetO(lists=lists).listed
    folders = Counter(entry.id.split("/")[0] for entry in entries)
    confidence = [float(entry.id.removesuffix(".JPEG").rpartition("_")[2]) for entry in entries]
    assert len(entries) == 2000
    assert len(folders) == 200
    assert (min(folders.values()), max(folders.values())) == (5, 30)
    assert set(folders) <= set(imagenet.wnids())
    assert len({entry.concept for entry in entries}) == 1617
    assert (round(min(confidence), 3), max(confidence)) == (0.880, 1.0)
    by_id = {entry.id: entry.concept for entry in entries}
    assert by_id["n01443537/cock_of_the_rock_Rupicola_peruviana_0.9983499.JPEG"] == Concept(
        "cock of the rock Rupicola peruviana"
    )
