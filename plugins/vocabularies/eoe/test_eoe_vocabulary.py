import pytest
from fiood_vocabulary_eoe import PROMPTS, EOELabels, eoe_filter, eoe_parse, released_parse

from fiood_core.errors import DataError, ParameterError
from fiood_core.generation import GenerationFile, Reply, names_digest
from fiood_core.testing import check_vocabulary
from fiood_core.testing.vocabularies import ID_NAMES
from fiood_core.vocabulary import VocabularyContext


def written(path, vocabulary, id_names, replies):
    """A generation file with the given replies of each generation."""
    file = GenerationFile(path)
    file.begin(
        {
            "kind": vocabulary.kind,
            "model": "toy",
            "replicates": len(replies),
            "conversations": {vocabulary.kind: len(replies[0])},
            "id_names": names_digest(id_names),
        }
    )
    for replicate, texts in enumerate(replies):
        for turn, text in enumerate(texts):
            file.add(Reply(replicate, vocabulary.kind, turn, text))
    return str(path)


def test_it_conforms(tmp_path):
    replies = [["- Sea fan\n- Teapot", "- Kelp"], ["- Okapi", "- Moss"]]
    path = written(tmp_path / "x.jsonl", EOELabels(), ID_NAMES, replies)
    check_vocabulary(EOELabels, {"generations": path})


def test_labels_of_a_generation_leave_out_id_names_and_repeats(tmp_path):
    replies = [["- Sea_fan.\n- TENCH", "- sea fan\n- Kelp"], ["- Okapi", "- Moss"]]
    path = written(tmp_path / "x.jsonl", EOELabels(), ["tench"], replies)
    vocabulary = EOELabels(generations=path)
    first, second = (vocabulary.labels(VocabularyContext(("tench",), replicate=i)) for i in (0, 1))
    assert (first.names, second.names) == (("sea fan", "kelp"), ("okapi", "moss"))
    assert (first.record["envisioned"], first.record["overlap"], first.record["model"]) == (4, 0, "toy")
    assert vocabulary.replicates == 2


def test_a_list_for_other_id_names_is_refused(tmp_path):
    path = written(tmp_path / "x.jsonl", EOELabels(), ["tench"], [["- Okapi"]])
    with pytest.raises(DataError, match="other ID names"):
        EOELabels(generations=path).labels(VocabularyContext(("hen",)))


def test_a_list_of_another_style_is_refused(tmp_path):
    path = written(tmp_path / "x.jsonl", EOELabels("far"), ["tench"], [["- Okapi"]])
    with pytest.raises(DataError, match=r"'eoe-far', not 'eoe-near'"):
        EOELabels("near", generations=path).labels(VocabularyContext(("tench",)))


def test_without_a_file_the_message_says_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match="fiood vocabulary generate"):
        EOELabels(generations=str(tmp_path / "none.jsonl")).labels(VocabularyContext(("tench",)))


@pytest.mark.parametrize("style", PROMPTS)
def test_a_generation_is_one_conversation_with_follow_ups(style):
    (conversation,) = EOELabels(style, total=500, per_call=50).conversations(["a {count} b", "hen", "hen"])
    assert len(conversation.prompts) == 10
    assert "2 " in conversation.prompts[0]
    assert "a {count} b; hen" in conversation.prompts[0]
    assert not any("{" in prompt for prompt in conversation.prompts[1:])


def test_replies_are_parsed_one_by_one():
    assert eoe_parse(["- Sunrise", "1. Moss\n- Sunrise"]) == ["Sunrise", "Moss", "Sunrise"]


def test_the_released_parser_fuses_replies():
    assert released_parse(["- Sunrise", "- Moss\n1. Kelp\n- Fern"]) == ["Sunrise- Moss", "Fern"]


def test_the_near_filter_drops_shared_words_whatever_their_case():
    kept = eoe_filter(["gray wolf", "wild cat", "siamese fish"], ["husky", "Siamese cat"], shared_words=True)
    assert kept == ["gray wolf"]
    cased = eoe_filter(["gray wolf", "siamese fish"], ["Siamese cat"], shared_words=True, cased=True)
    assert cased == ["gray wolf", "siamese fish"]


@pytest.mark.parametrize("wrong", [{"style": "general"}, {"total": 10, "per_call": 3}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError):
        EOELabels(**wrong)
