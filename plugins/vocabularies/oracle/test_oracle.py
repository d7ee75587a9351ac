import pytest
from fiood_vocabulary_oracle import Oracle

from fiood_core import Concept, View, wordnet
from fiood_core.errors import DataError
from fiood_core.testing import check_vocabulary
from fiood_core.vocabulary import VocabularyContext


def test_it_conforms():
    check_vocabulary(Oracle)


def test_labels_are_the_distinct_concepts_in_order():
    concepts = [Concept("sea_fan"), None, Concept("kelp"), Concept("sea fan")]
    view = View("x", ["1", "2", "3", "4"], concepts=concepts)
    labels = Oracle().labels(VocabularyContext(id_names=("kelp",), ood=view))
    assert labels.names == ("sea fan", "kelp")
    assert labels.record["overlap"] == 1


def test_a_wordnet_id_alone_is_named_by_the_first_word_of_its_synset():
    try:
        wordnet.load()
    except DataError as error:
        pytest.skip(str(error))
    view = View("x", ["1", "2", "3"], concepts=[Concept("", "n07751451"), Concept("", "n13032115"), Concept("plum")])
    labels = Oracle().labels(VocabularyContext(id_names=("tench",), ood=view))
    assert labels.names == ("plum", "morel")


def test_an_unlabelled_set_is_refused():
    with pytest.raises(DataError, match="pictures have labels"):
        Oracle().labels(VocabularyContext(id_names=("kelp",), ood=View("x", ["1"])))
