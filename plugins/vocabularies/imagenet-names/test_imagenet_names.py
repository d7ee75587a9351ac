import pytest
from fiood_vocabulary_imagenet_names import ImageNetNames

from fiood_core import imagenet
from fiood_core.errors import DataError, ParameterError
from fiood_core.testing import check_vocabulary
from fiood_core.vocabulary import VocabularyContext

CONTEXT = VocabularyContext(id_names=("tench",))


def test_it_conforms():
    check_vocabulary(ImageNetNames)


def test_names_are_keyed_by_wordnet_id():
    assert ImageNetNames().names(["n02123045", "n01440764"]) == ["tabby cat", "tench"]
    assert len(ImageNetNames().names()) == len(imagenet.wnids()) == 1000


def test_the_published_list_has_two_names_of_two_classes_and_the_fixed_one_none():
    published, fixed = (ImageNetNames(list=name).labels(CONTEXT) for name in ("openai", "openai-fixed"))
    assert (len(published), published.record["names_of_several_classes"]) == (998, 2)
    assert (len(fixed), fixed.record["names_of_several_classes"]) == (1000, 0)
    assert set(fixed.names) - set(published.names) == {"projectile", "sunglass"}


def test_a_foreign_wordnet_id_is_refused():
    with pytest.raises(DataError, match="'n00000001' is no class of ImageNet-1k"):
        ImageNetNames().names(["n00000001"])


def test_an_unknown_list_is_refused():
    with pytest.raises(ParameterError, match="list must be"):
        ImageNetNames(list="clip")
