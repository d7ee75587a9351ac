import pytest
from fiood_dataset_imagenet_1k import ImageNetID, ImageNetTrain, ImageNetVal

from fiood_core import imagenet
from fiood_core.errors import DataError
from fiood_core.lists import image_list
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import picture_file, stand_in

DEVKIT_ORDER = "vim_imagenet2012_val_list_devkit_order.txt"
NAMES = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 50_001)]


@pytest.mark.parametrize("dataset", [ImageNetVal, ImageNetID])
def test_a_stand_in_conforms(dataset, tmp_path):
    entries = [{"id": name, "targets": [i % 3]} for i, name in enumerate(NAMES[:4])]
    check_dataset(stand_in(dataset(tmp_path), entries))


@pytest.mark.parametrize("layout", ["", "val/", "val/n01440764/", "ILSVRC/Data/CLS-LOC/val/"])
def test_flat_copies_and_copies_in_class_folders_are_found(layout, tmp_path):
    dataset = stand_in(ImageNetVal(tmp_path), [{"id": NAMES[0], "targets": [0]}])
    (tmp_path / layout).mkdir(parents=True, exist_ok=True)
    (tmp_path / NAMES[0]).rename(tmp_path / layout / NAMES[0])
    assert not dataset.verify()
    assert dataset.open(NAMES[0]) == tmp_path / layout / NAMES[0]


@pytest.mark.shared
def test_labels_are_places_among_sorted_wnids_five_of_each_class_for_tuning(lists):
    entries = ImageNetVal(lists=lists).listed
    assert [entry.id for entry in entries] == NAMES
    for subset, each in (("openood-test", 45), ("openood-val", 5)):
        labels = [entry.targets[0] for entry in entries if entry.subsets == (subset,)]
        assert len(labels) == 1000 * each
        assert all(labels.count(label) == each for label in (0, 1, 998, 999))
    assert entries[0].targets == (65,)


@pytest.mark.shared
def test_the_devkit_order_is_recognised_and_converted(lists):
    devkit = dict(image_list(lists / DEVKIT_ORDER))
    ours = {f"val/{entry.id}": entry.targets[0] for entry in ImageNetVal(lists=lists).listed}
    assert all(int(devkit[name]) != label for name, label in ours.items())
    assert len({(devkit[name], label) for name, label in ours.items()}) == 1000
    converted = ImageNetVal(labels=lists / DEVKIT_ORDER).listed
    assert {f"val/{entry.id}": entry.targets[0] for entry in converted} == ours


@pytest.mark.shared
def test_any_other_order_is_refused(lists, tmp_path):
    rows = image_list(lists / DEVKIT_ORDER)
    (tmp_path / "rotated.txt").write_text("".join(f"{path} {(int(label) + 1) % 1000}\n" for path, label in rows))
    with pytest.raises(DataError, match="neither sorted wnids"):
        _ = ImageNetVal(labels=tmp_path / "rotated.txt").listed


def write_lists(folder, ood, ambiguous):
    folder.mkdir()
    paths = folder / "ood.txt", folder / "ambiguous.txt"
    for path, names in zip(paths, (ood, ambiguous), strict=True):
        path.write_text("# a list\n" + "".join(f"val/{name} 1\n" for name in names))
    return {"ood_list": paths[0], "ambiguous_list": paths[1]}


@pytest.mark.shared
def test_the_id_set_is_what_two_lists_leave(lists, tmp_path):
    entries = ImageNetID(lists=lists, **write_lists(tmp_path / "lists", NAMES[:655], NAMES[655:1635])).listed
    assert [entry.id for entry in entries] == NAMES[1635:]
    assert len(entries) == 48_365


@pytest.mark.shared
@pytest.mark.parametrize(
    ("ood", "ambiguous", "message"),
    [
        (NAMES[:654], NAMES[655:1635], "names 654 validation pictures, .* has 655"),
        (NAMES[:655], NAMES[655:1634], "names 979 validation pictures, .* has 980"),
        (NAMES[:655], NAMES[654:1634], "must be disjoint"),
    ],
)
def test_lists_of_other_sizes_or_that_overlap_are_refused(lists, tmp_path, ood, ambiguous, message):
    with pytest.raises(DataError, match=message):
        _ = ImageNetID(lists=lists, **write_lists(tmp_path / "lists", ood, ambiguous)).listed


@pytest.mark.shared
def test_without_its_lists_the_id_set_says_what_to_do(lists):
    messages = [line for line in ImageNetID(lists=lists).missing() if "not released yet" in line]
    assert ["fi_imagenet_1k_ood" in messages[0], "fi_imagenet_1k_ambiguous" in messages[1]] == [True, True]


@pytest.fixture
def train(tmp_path):
    counts = {imagenet.wnids()[999]: 2, imagenet.wnids()[3]: 1}
    for wnid, count in counts.items():
        (tmp_path / wnid).mkdir()
        for number in range(count):
            name = f"{wnid}_{number}.JPEG"
            (tmp_path / wnid / name).write_bytes(picture_file(name))
    return ImageNetTrain(tmp_path).with_manifest({"classes": counts})


def test_a_training_stand_in_conforms(train):
    check_dataset(train)
    assert train.view().targets == [(3,), (999,), (999,)]
    assert not train.view().canonical


def test_a_training_copy_that_lacks_or_gained_files_is_told(train):
    wnid = imagenet.wnids()[999]
    (train.root / wnid / f"{wnid}_0.JPEG").unlink()
    (train.root / wnid / "notes.txt").touch()
    (train.root / imagenet.wnids()[3] / f"{imagenet.wnids()[3]}_0.JPEG").write_bytes(b"")
    train.forget()
    findings = train.verify()
    assert [finding.partition(":")[0] for finding in findings] == ["missing", "empty", "extra"]
    assert f"{wnid} has 1 of 2" in findings[0]
    assert (
        "1 pictures under" in ImageNetTrain(train.root).missing()[0]
        or "998 classes" in ImageNetTrain(train.root).missing()[0]
    )
