import pytest
from fiood_vocabulary_union import Union

from fiood_core import Concept, View
from fiood_core.errors import ParameterError
from fiood_core.testing import check_vocabulary
from fiood_core.vocabulary import VocabularyContext

PARTS = ["oracle", {"name": "imagenet-names", "list": "openai"}]


def test_it_conforms():
    check_vocabulary(Union, {"parts": PARTS})


def test_equal_labels_count_once_and_the_first_part_comes_first():
    view = View("x", ["1", "2"], concepts=[Concept("sea fan"), Concept("Tench")])
    labels = Union(PARTS).labels(VocabularyContext(id_names=("tench",), ood=view))
    assert labels.names[:3] == ("sea fan", "Tench", "goldfish")
    assert len(labels) == 2 + 998 - 1
    assert [part["size"] for part in labels.record["parts"]] == [2, 998]


def test_it_needs_what_its_parts_need():
    union = Union(["oracle", "wordnet(m=5)"])
    assert (union.needs_ood, union.needs_embeddings, union.replicates) == (True, True, 1)


def test_one_part_is_no_union():
    with pytest.raises(ParameterError, match="at least two"):
        Union("oracle")
