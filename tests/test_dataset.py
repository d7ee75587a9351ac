"""Views: what they refuse, and what their digest depends on."""

from pathlib import Path

import pytest

from fiood_core.dataset import Concept, Dataset, Info, View
from fiood_core.errors import DataError


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"ids": ["a", "b", "a"]}, "names 'a' twice"),
        ({"ids": ["a", "b"], "targets": [(0,)]}, "2 ids but 1 targets"),
        ({"ids": ["a"], "concepts": [None, None]}, "1 ids but 2 concepts"),
        ({"ids": ["a", "b"], "targets": [(0,), (3, -1)]}, "'b' has the class -1"),
        ({"ids": ["a"], "subsets": {"fine": [0, 1]}}, "subset 'fine' has rows outside 0 to 0"),
    ],
)
def test_a_view_that_contradicts_itself_is_refused(parts, said):
    with pytest.raises(DataError, match=said):
        View("somewhere", **parts)


FULL = {"ids": ["a", "b"], "targets": [(0,), (1, 2)], "concepts": [None, Concept("x", "n1")], "subsets": {"s": [0]}}


@pytest.mark.parametrize(
    "change",
    [
        {"ids": ["a", "c"]},
        {"ids": ["b", "a"]},
        {"targets": [(0,), (1, 3)]},
        {"targets": None},
        {"concepts": [None, Concept("y", "n1")]},
        {"concepts": [None, Concept("x")]},
        {"concepts": [Concept("x", "n1"), None]},
        {"subsets": {"t": [0]}},
        {"subsets": {"s": [1]}},
    ],
)
def test_the_digest_depends_on_ids_order_labels_and_subsets(change):
    assert View("somewhere", **{**FULL, **change}).digest != View("somewhere", **FULL).digest


def test_the_digest_does_not_depend_on_where_the_pictures_lie():
    assert View("elsewhere", **FULL).digest == View("somewhere", **FULL).digest


def test_the_digest_cannot_be_forged_by_separators_in_names():
    one = View("x", ["a\n('b', (), None)"])
    two = View("x", ["a", "b"])
    assert one.digest != two.digest
    assert View("x", ["a"], concepts=[Concept("b:c")]).digest != View("x", ["a"], concepts=[Concept("c", "b")]).digest


def test_some_pictures_of_a_view_keep_their_labels_and_subsets():
    part = View("somewhere", **FULL).take([1])
    assert (list(part.ids), list(part.targets), list(part.concepts)) == (["b"], [(1, 2)], [Concept("x", "n1")])
    assert part.subsets == {"s": []}


class Files(Dataset):
    info = Info(title="Files")

    def __init__(self, root):
        self.root = root

    def view(self):
        return View("files", ["a"])

    def open(self, image_id):
        return self.root / image_id


class Memory(Files):
    def open(self, image_id):
        return object()


def test_a_file_s_stamp_is_its_size_and_time_of_change(tmp_path):
    (tmp_path / "a").write_text("x")
    dataset = Files(tmp_path)
    before = dataset.stamps(["a"])
    (tmp_path / "a").write_text("xy")
    assert dataset.stamps(["a"]) != before


def test_a_dataset_without_files_must_give_stamps():
    with pytest.raises(DataError, match="must give stamps"):
        Memory(Path()).stamps(["a"])


def test_a_dataset_needs_nothing_more_than_view_and_open(tmp_path):
    dataset = Files(tmp_path)
    assert dataset.missing() == ()
    assert dataset.verify() == ()
    assert dataset.prepare() is None
    with pytest.raises(DataError, match="no manifest"):
        dataset.with_manifest({})
