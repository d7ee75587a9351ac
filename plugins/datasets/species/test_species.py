import pytest
from fiood_dataset_species import Species

from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(Species(tmp_path), [{"id": "species_sub/0.jpg"}, {"id": "species_sub/10.jpg"}]))


@pytest.mark.shared
def test_the_list_is_numbered_from_0_to_9999(lists):
    assert {e.id for e in Species(lists=lists).listed} == {f"species_sub/{number}.jpg" for number in range(10_000)}
