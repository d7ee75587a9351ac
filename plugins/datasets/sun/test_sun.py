import pytest
from fiood_dataset_sun import SUN

from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(SUN(tmp_path), [{"id": "images/sun_aaaevyiuguntlerb.jpg"}]))


@pytest.mark.shared
def test_the_list_has_ten_thousand_pictures_without_labels(lists):
    entries = SUN(lists=lists).listed
    assert len({entry.id for entry in entries}) == 10_000
    assert all(entry.id.startswith("images/sun_") and entry.concept is None for entry in entries)
