from collections import Counter

import pytest
from fiood_dataset_inaturalist import INaturalist

from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


def test_a_stand_in_conforms(tmp_path):
    name = "000309dd0c724a5104df8e716b9008a0"
    check_dataset(stand_in(INaturalist(tmp_path), [{"id": f"images/{name}.jpg", "name": "Toxicodendron"}]))


@pytest.mark.shared
def test_all_ten_thousand_pictures_join_one_of_110_species(lists):
    species = Counter(entry.concept.name for entry in INaturalist(lists=lists).listed)
    assert sum(species.values()) == 10_000
    assert len(species) == 110
    assert (min(species.values()), max(species.values())) == (14, 688)
