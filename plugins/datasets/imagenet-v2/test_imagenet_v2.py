from collections import Counter

import pytest
from fiood_dataset_imagenet_v2 import ImageNetV2

from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_numbered_folders_are_classes_by_their_number(tmp_path):
    entries = [{"id": f"{folder}/a.jpeg", "targets": [folder]} for folder in (2, 10, 100)]
    dataset = stand_in(ImageNetV2(tmp_path), entries)
    check_dataset(dataset)
    assert dataset.view().targets == [(2,), (10,), (100,)]


@pytest.mark.shared
def test_the_list_has_ten_pictures_of_each_class(lists):
    entries = ImageNetV2(lists=lists).listed
    assert len(entries) == 10_000
    assert set(Counter(entry.targets for entry in entries).values()) == {10}
    assert all(entry.targets == (int(entry.id.split("/")[0]),) for entry in entries)
