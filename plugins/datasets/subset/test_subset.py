import pytest
from fiood_dataset_subset import Subset

import fiood_core as fiood
from fiood_core.errors import DataError
from fiood_core.testing import check_dataset


@pytest.fixture
def ids(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("digits/9/0009\nnoise/blobs/03\n")
    return path


def test_it_conforms(ids):
    check_dataset(Subset("digits-pool", ids))


def test_pictures_keep_their_source_and_the_lists_order(ids):
    view = Subset("digits-pool", ids).view()
    assert (view.source, list(view.ids)) == ("digits-pool", ["digits/9/0009", "noise/blobs/03"])
    assert [concept.name for concept in view.concepts] == ["nine", "blobs"]


def test_an_id_that_is_not_in_the_set_is_refused_by_name(ids):
    ids.write_text("noise/blobs/03\nnoise/blobs/99\n")
    (problem,) = Subset("digits-pool", ids).missing()
    assert "1 ids" in problem
    assert "noise/blobs/99" in problem


@pytest.mark.parametrize("content", [None, ""])
def test_a_missing_or_empty_list_is_refused(tmp_path, content):
    path = tmp_path / "list.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=r"no list of ids|names no picture"):
        Subset("digits-pool", path).view()


def test_the_classes_are_the_whole_sets(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("0/0030\n")
    digits = fiood.dataset("digits")
    assert Subset(digits, path).class_names == digits.class_names is not None
