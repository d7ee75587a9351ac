import pytest
from fiood_vocabulary_llm_siblings import LLMSiblings, gpt_pool, truncated

from fiood_core import wordnet
from fiood_core.errors import DataError, ParameterError
from fiood_core.generation import GenerationFile, Reply, names_digest
from fiood_core.testing import check_vocabulary
from fiood_core.testing.vocabularies import ID_NAMES
from fiood_core.vocabulary import VocabularyContext

NAMES = ("collie", "tench")
REPLIES = [
    {"collie": "- Bearded Collie\n- Border collie\n- smooth  collie", "tench": "- crucian_carp\n- Collie\n- rudd"},
    {"collie": "- sheltie\n- bearded collie", "tench": "- Roach\n- bearded collie"},
]


def written(path, id_names, replies):
    file = GenerationFile(path)
    conversations = dict.fromkeys(id_names, 1)
    request = {"replicates": len(replies), "conversations": conversations, "id_names": names_digest(id_names)}
    file.begin({"kind": "llm-siblings", "model": "toy", **request})
    for replicate, texts in enumerate(replies):
        for name, text in texts.items():
            file.add(Reply(replicate, name, 0, text))
    return str(path)


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "x.jsonl", NAMES, REPLIES)


def have_wordnet():
    try:
        wordnet.load()
    except DataError:
        return False
    return True


@pytest.mark.skipif(not have_wordnet(), reason="WordNet 3.0 is not installed")
def test_it_conforms(tmp_path):
    replies = [{name: f"- sibling of {name}\n- thing" for name in ID_NAMES}] * 2
    check_vocabulary(LLMSiblings, {"generations": written(tmp_path / "x.jsonl", ID_NAMES, replies)})


def test_each_generation_is_a_pool_of_its_own(path):
    vocabulary = LLMSiblings(generations=path)
    first, second = (vocabulary.labels(VocabularyContext(NAMES, replicate=i)) for i in (0, 1))
    assert first.names == ("bearded collie", "border collie", "smooth collie", "crucian carp", "rudd")
    assert second.names == ("sheltie", "bearded collie", "roach")
    assert (first.record["removed_by_ban"], second.record["size_by_class"], vocabulary.replicates) == (1, 4, 2)


@pytest.mark.skipif(not have_wordnet(), reason="WordNet 3.0 is not installed")
def test_synonyms_of_an_id_class_are_banned_for_every_class(tmp_path):
    replies = [{"collie": "- Tinca tinca\n- sheltie", "tench": "- rudd"}]
    path = written(tmp_path / "x.jsonl", NAMES, replies)
    context = VocabularyContext(NAMES, id_wnids=("n02106030", "n01440764"))
    assert LLMSiblings(generations=path).labels(context).names == ("sheltie", "rudd")


def test_the_merged_pool_joins_all_generations(path):
    vocabulary = LLMSiblings(merged=True, generations=path)
    names = vocabulary.labels(VocabularyContext(NAMES)).names
    assert vocabulary.replicates == 1
    assert names == ("bearded collie", "border collie", "smooth collie", "sheltie", "crucian carp", "rudd", "roach")


def test_truncated_pools_are_nested(path):
    one, two = (
        LLMSiblings(merged=True, k=k, dedupe="per_class", generations=path).labels(VocabularyContext(NAMES))
        for k in (1, 2)
    )
    assert (len(one), len(two)) == (2, 4)
    assert set(one.names) < set(two.names)


def test_truncation_is_a_prefix_of_one_permutation_a_class():
    siblings = {"a": [f"a{i}" for i in range(9)], "b": ["b0"]}
    assert truncated(siblings, [], 9)["a"][:4] == truncated(siblings, [], 4)["a"]
    assert truncated(siblings, ["B0"], 4)["b"] == []


def test_a_repeat_counts_once_in_the_pool_or_once_a_class():
    siblings = {"collie": ["Border Collie", "sheltie"], "tench": ["sheltie", "rudd"]}
    assert gpt_pool(siblings, ["border_collie"]) == (["sheltie", "rudd"], 1)
    assert gpt_pool(siblings, ["border_collie"], "per_class") == (["sheltie", "sheltie", "rudd"], 1)


def test_one_question_for_each_distinct_name():
    conversations = LLMSiblings(per_class=3).conversations(["tench", "hen", "tench"])
    assert [c.key for c in conversations] == ["tench", "hen"]
    assert "Name 3 specific categories that are visually similar siblings of 'tench'" in conversations[0].prompts[0]


@pytest.mark.parametrize("wrong", [{"k": 3}, {"per_class": 0}, {"dedupe": "global"}])
def test_values_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ParameterError):
        LLMSiblings(**wrong)
