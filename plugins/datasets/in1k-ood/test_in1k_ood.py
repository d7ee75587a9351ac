import json

import pytest
from fiood_dataset_in1k_ood import IN1kOOD

from fiood_core import imagenet
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(IN1kOOD(tmp_path), [{"id": "n02033882/n02033882_1.JPEG", "wnid": "n02033882"}]))


@pytest.mark.shared
def test_a_thousand_classes_between_two_wnids_none_of_imagenet_1k(lists):
    paths = {remote.name: lists / remote.name for remote in IN1kOOD.list_files}
    wnids = IN1kOOD(lists=lists).wnids(paths)
    assert len(wnids) == len(set(wnids)) == 1000
    assert (min(wnids), max(wnids)) == ("n01600085", "n02188699")
    assert not set(wnids) & set(imagenet.wnids())
    hard = json.loads((lists / "ssb_splits.json").read_text())["unknown_classes"]["Hard"]
    assert len(set(wnids) & set(hard)) == 230
