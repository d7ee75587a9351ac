import pytest
from fiood_dataset_360openset import OpenSet360, OpenSet360All, synsets

from fiood_core import imagenet
from fiood_core.errors import DataError
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in


@pytest.mark.parametrize("dataset", [OpenSet360, OpenSet360All])
def test_a_stand_in_conforms(dataset, tmp_path):
    entries = [{"id": f"n07751451/n07751451_{i}.JPEG", "wnid": "n07751451"} for i in (1, 10)]
    check_dataset(stand_in(dataset(tmp_path), entries))


def test_a_list_that_names_a_class_twice_is_refused(tmp_path):
    (tmp_path / "synsets.txt").write_text("n07751451 plum\nn07751451 plum\n")
    with pytest.raises(DataError, match="each wnid once"):
        synsets(tmp_path / "synsets.txt")


@pytest.mark.shared
def test_360_classes_none_of_imagenet_1k_and_236_in_ninco(lists):
    official = synsets(lists / "osdn_360_synsets.txt")
    assert len(official) == 360
    assert not set(official) & set(imagenet.wnids())
    paths = {remote.name: lists / remote.name for remote in OpenSet360.list_files}
    kept = OpenSet360(lists=lists).wnids(paths)
    assert len(kept) == 236
    assert set(kept) <= set(official)
    assert OpenSet360.info.expected_count == 236 * 50 == 11800


@pytest.mark.shared
def test_the_first_fifty_names_in_sorted_order_are_taken(lists, tmp_path):
    for wnid in synsets(lists / "osdn_360_synsets.txt"):
        (tmp_path / wnid).mkdir()
        for number in range(1, 61):
            (tmp_path / wnid / f"{wnid}_{number}.JPEG").touch()
    entries = OpenSet360All(tmp_path, lists).listed
    assert len(entries) == 18000
    first = [entry.id.rpartition("_")[2] for entry in entries[:3]]
    assert first == ["1.JPEG", "10.JPEG", "11.JPEG"]
    (tmp_path / "n07751451" / "n07751451_1.JPEG").rename(tmp_path / "n07751451_1.JPEG")
    for number in range(2, 13):
        (tmp_path / "n07751451" / f"n07751451_{number}.JPEG").unlink()
    with pytest.raises(DataError, match=r"1 classes have fewer than 50 pictures .*n07751451 \(48\)"):
        _ = OpenSet360All(tmp_path, lists).listed
