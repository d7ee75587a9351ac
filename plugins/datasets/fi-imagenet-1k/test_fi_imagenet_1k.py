import csv
import itertools

import pytest
from fiood_dataset_fi_imagenet_1k import COLUMNS, FiImageNet1k

from fiood_core import imagenet, wordnet
from fiood_core.errors import DataError
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in

ANIMAL, THING = imagenet.wnids()[0], imagenet.wnids()[999]


def rows():
    """A made-up list that has all of the paper's numbers."""
    fine = ["no_class"] * 117 + ["uncertain"] * 241
    ordinary = ["no_class"] * (205 - 117) + ["uncertain"] * (450 - 241)
    flags = [("1", flag) for flag in fine] + [("0", flag) for flag in ordinary]
    labels = itertools.chain((f"thing {i}" for i in range(522)), itertools.repeat("thing 0"))
    return [
        [f"ILSVRC2012_val_{i + 1:08d}", label, fine, flag, ANIMAL if i < 380 else THING]
        for i, ((fine, flag), label) in enumerate(zip(flags, labels, strict=False))
    ]


def dataset(folder, ood, ambiguous=range(655, 1635)):
    with (folder / "ood.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *ood])
    (folder / "ambiguous.txt").write_text("".join(f"ILSVRC2012_val_{i + 1:08d}.JPEG\n" for i in ambiguous))
    return FiImageNet1k(folder, ood_list=folder / "ood.csv", ambiguous_list=folder / "ambiguous.txt")


@pytest.fixture(autouse=True)
def words():
    try:
        wordnet.load()
    except DataError as error:
        pytest.skip(str(error))


def test_a_stand_in_conforms(tmp_path):
    entries = [{"id": "ILSVRC2012_val_00000001.JPEG", "name": "thing", "subsets": ["fine-grained"]}]
    check_dataset(stand_in(FiImageNet1k(tmp_path), entries))


def test_a_list_with_the_papers_numbers_is_taken(tmp_path):
    entries = dataset(tmp_path, rows()).listed
    subsets = [entry.subsets[0] for entry in entries]
    assert (subsets.count("fine-grained"), subsets.count("ordinary")) == (358, 297)
    assert len({entry.concept for entry in entries}) == 522


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, "ILSVRC2012_val_00000001", "distinct pictures: the list has 654, the paper 655"),
        (1, "thing 521", "distinct labels: the list has 521, the paper 522"),
        (1, "Tinca tinca", "'Tinca tinca' names an ImageNet-1k class"),
        (1, " ", "has no ood_label"),
        (2, "0", "fine-grained pictures: the list has 357, the paper 358"),
        (2, "2", "fine_grained must be 0 or 1"),
        (3, "uncertain", "flags: the list has"),
        (3, "ambiguous", "reimagenet_flag one of"),
        (4, THING, "pictures of animal classes: the list has 379, the paper 380"),
        (4, "n00000001", "is no ImageNet-1k class"),
    ],
)
def test_one_changed_field_is_refused(tmp_path, column, value, message):
    changed = rows()
    changed[1][column] = value
    with pytest.raises(DataError, match=message):
        _ = dataset(tmp_path, changed).listed


def test_a_flag_moved_between_the_halves_is_refused(tmp_path):
    changed = rows()
    changed[0][3], changed[654][3] = changed[654][3], changed[0][3]
    with pytest.raises(DataError, match="flags of fine-grained pictures"):
        _ = dataset(tmp_path, changed).listed


def test_one_row_less_or_an_ambiguous_list_that_does_not_fit_is_refused(tmp_path):
    with pytest.raises(DataError, match="654 rows, the set has 655"):
        _ = dataset(tmp_path, rows()[1:]).listed
    with pytest.raises(DataError, match="979 pictures, the paper has 980"):
        _ = dataset(tmp_path, rows(), range(655, 1634)).listed
    with pytest.raises(DataError, match="on the OOD list too"):
        _ = dataset(tmp_path, rows(), range(654, 1634)).listed


def test_until_it_is_released_it_refuses_with_instructions(tmp_path):
    first, second, pictures = FiImageNet1k(tmp_path / "none", tmp_path).missing()
    for message, name in ((first, "fi_imagenet_1k_ood.csv"), (second, "fi_imagenet_1k_ambiguous.txt")):
        assert name in message
        assert "not released yet" in message
        assert "ood_list=" in message
    assert "ILSVRC2012_img_val.tar" in pictures
