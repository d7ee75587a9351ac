import pytest
from fiood_dataset_cood import COOD, LOST

from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(COOD(tmp_path), [{"id": "n01322983/n01322983_1.JPEG", "wnid": "n01322983"}]))


@pytest.mark.shared
def test_207_classes_are_left_of_the_212_that_ninco_kept(lists):
    paths = {remote.name: lists / remote.name for remote in COOD.list_files}
    wnids = COOD(lists=lists).wnids(paths)
    assert len(wnids) == 207
    assert not LOST & set(wnids)
    assert COOD.info.expected_count == 207 * 50 == 10350
