import pytest
from fiood_dataset_imagenet_es import ImageNetES

from fiood_core import imagenet
from fiood_core.errors import DataError
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in

ENTRIES = [
    {"id": f"es-test/param_control/l1/param_3/{imagenet.wnids()[c]}/a {c}.JPEG", "targets": [c], "subsets": ["l1"]}
    for c in (1, 5)
]


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(ImageNetES(tmp_path), ENTRIES))


@pytest.mark.slow
def test_a_tree_of_64_settings_of_200_classes_is_accepted_and_one_picture_less_is_not(tmp_path):
    settings = [("param_control", range(1, 28)), ("auto_exposure", range(1, 6))]
    folders = [tmp_path / f"es-test/{m}/{li}/param_{n}" for m, ns in settings for li in ("l1", "l5") for n in ns]
    for folder in folders:
        for wnid in imagenet.wnids()[:200]:
            (folder / wnid).mkdir(parents=True)
            for number in range(5):
                (folder / wnid / f"{number}.JPEG").touch()
    (tmp_path / "es-test/sampled_tin_no_resize2/n01440764").mkdir(parents=True)
    (tmp_path / "es-test/sampled_tin_no_resize2/n01440764/reference.JPEG").touch()
    entries = ImageNetES(tmp_path).listed
    assert len(entries) == 64_000
    assert {subset for entry in entries for subset in entry.subsets} == {"param_control", "auto_exposure", "l1", "l5"}
    (tmp_path / "es-test/param_control/l1/param_1/n01440764/0.JPEG").unlink()
    with pytest.raises(DataError, match="64 settings, 200 classes and 63,999 pictures"):
        _ = ImageNetES(tmp_path).listed
