from collections import Counter

import pytest
from fiood_dataset_imagenet_r import ImageNetR

from fiood_core import imagenet
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(ImageNetR(tmp_path), [{"id": "n02607072/misc_46.jpg", "targets": [393]}]))


@pytest.mark.shared
def test_the_list_has_200_classes_labelled_by_their_wnid(lists):
    entries = ImageNetR(lists=lists).listed
    assert len(entries) == 30_000
    assert len(Counter(entry.targets for entry in entries)) == 200
    assert all(imagenet.wnids()[entry.targets[0]] == entry.id.split("/")[0] for entry in entries)
