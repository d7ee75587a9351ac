"""Runs of a vision-language model: classes from names, negative labels by vocabulary, replicate and OOD set."""

import importlib.util
import json
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch

import fiood_core as fiood
from fiood_core import results, settings, text, wordnet
from fiood_core import suite as suites
from fiood_core.dataset import Concept, Info, View
from fiood_core.errors import DataError, InputError
from fiood_core.imagenet import wnids
from fiood_core.plan import resolve
from fiood_core.runner import run
from fiood_core.zero_shot import ZeroShot, class_names, labels_for

HERE = Path(__file__).parent
TINY = HERE / "tiny_text.py"


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The module of tiny components, as the runner imports it, with its counts at zero."""
    from fiood_core import registry

    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("fiood_core.tasks.SHOW_PROGRESS", False)
    backbone = registry.create("backbone", f"{TINY}:TinyText")
    module = importlib.import_module(type(backbone).__module__)
    module.counts.clear()
    return module


@pytest.fixture
def go(words, tmp_path):
    """Run a suite of tiny components in a directory of the test's own."""

    def go(
        vocabularies, detectors=("msp", "neglabel"), backbones=("TinyText",), benchmark="WordsBenchmark", output="out"
    ):
        data = {
            "name": "words",
            "benchmark": f"{TINY}:{benchmark}",
            "backbones": [name if name.islower() else f"{TINY}:{name}" for name in backbones],
            "detectors": list(detectors),
            "vocabularies": [name if name.islower() else f"{TINY}:{name}" for name in vocabularies],
            "settings": {"device": "cpu", "batch_size": 8, "precision": "float64"},
        }
        plan = resolve(suites.read(json.dumps(data)))
        plan.require_sound()
        return run(plan, tmp_path / output, store=tmp_path / "store")

    return go


def row(found, detector, ood, **given):
    (one,) = [
        r
        for r in found.rows
        if (r["detector"], r["ood"]) == (detector, ood) and all(r[key] == value for key, value in given.items())
    ]
    return one


def expected(words, inside, outside, negatives):
    """NegLabel's scores from the embeddings themselves."""
    backbone = words.TinyText()

    def unit(names):
        return text.text_ensemble(
            backbone.encode_text([p for n in names for p in text.render_prompts(n)]).reshape(
                len(names), len(text.TEMPLATES), -1
            )
        ).double()

    def features(dataset):
        backbone.set_classes(fiood.Head(unit(words.WORDS[:4]).float()))
        images = torch.stack([backbone.transform(dataset.open(i)) for i in dataset.view().ids])
        return backbone.forward(images).features.double()

    names, labels = unit(words.WORDS[:4]), unit(negatives)
    scores = []
    for dataset in (inside, outside):
        logits = features(dataset) @ torch.cat([names, labels]).T / backbone.temperature
        scores.append(torch.softmax(logits, dim=1)[:, :4].sum(dim=1).numpy())
    return scores


def test_scores_against_the_oracle_are_those_of_each_sets_own_labels(go, words):
    found = go(["oracle"])
    for ood in ("mammals", "birds"):
        inside, outside = found.scores(row(found, "neglabel", ood))
        shown = words.WordsBenchmark()
        wanted = expected(words, shown.id_test, shown.ood[ood].dataset, shown.ood[ood].dataset.words)
        np.testing.assert_allclose(inside.values, wanted[0], rtol=1e-4)
        np.testing.assert_allclose(outside.values, wanted[1], rtol=1e-4)
    mammals, birds = (row(found, "neglabel", ood) for ood in ("mammals", "birds"))
    assert mammals["id_column"] == "neglabel · oracle @ mammals"
    assert mammals["vocabulary_digest"] != birds["vocabulary_digest"]
    assert mammals["vocabulary_digest"] == fiood.Labels(("elk", "fox", "gnu", "lynx")).digest
    assert mammals["key"] != birds["key"]


def test_msp_and_mcm_are_one_score_of_a_zero_shot_head(go):
    found = go(["oracle"], detectors=("msp", "mcm"))
    for ood in ("mammals", "birds", "unnamed"):
        msp, mcm = (found.scores(row(found, name, ood)) for name in ("msp", "mcm"))
        assert all(np.array_equal(a.values, b.values) for a, b in zip(msp, mcm, strict=True))


def test_an_unlabelled_set_fails_alone_with_the_oracles_reason(go):
    found = go(["oracle"])
    assert {(r["column"], r["ood"]) for r in found.failed} == {("neglabel · oracle", "unnamed")}
    assert "pictures have labels" in found.failed[0]["reason"]
    assert {r["ood"] for r in found.rows if r["detector"] == "neglabel"} == {"mammals", "birds"}


def test_each_replicate_is_a_row_and_their_mean_a_view(go, words):
    found = go(["ThreeLists"])
    rows = [r for r in found.rows if r["detector"] == "neglabel" and r["ood"] == "birds"]
    assert [r["replicate"] for r in rows] == [0, 1, 2]
    assert len({r["vocabulary_digest"] for r in rows}) == len({r["key"] for r in rows}) == 3
    (merged,) = [r for r in results.over_replicates(found.rows) if r["detector"] == "neglabel" and r["ood"] == "birds"]
    assert merged["replicates"] == 3
    assert merged["fpr95"] == pytest.approx(statistics.fmean(r["fpr95"] for r in rows))
    assert merged["fpr95_std"] == pytest.approx(statistics.stdev(r["fpr95"] for r in rows))
    shown = words.WordsBenchmark()
    inside, outside = found.scores(rows[1])
    wanted = expected(words, shown.id_test, shown.ood["birds"].dataset, [*words.WORDS[5:9], "worm"])
    np.testing.assert_allclose(inside.values, wanted[0], rtol=1e-4)
    np.testing.assert_allclose(outside.values, wanted[1], rtol=1e-4)


def test_the_record_tells_of_every_list(go):
    (group,) = go(["ThreeLists", "oracle"]).run["groups"]
    lists = {name.rpartition(":")[2]: record for name, record in group["vocabularies"].items()}
    assert set(lists) == {f"ThreeLists · #{i}" for i in range(3)} | {"oracle @ mammals", "oracle @ birds"}
    assert lists["oracle @ birds"]["size"] == 4
    assert lists["oracle @ birds"]["overlap"] == 0


def test_a_second_run_embeds_and_loads_nothing(go, words):
    first = go(["ThreeLists", "oracle", "Mined"])
    assert words.counts["texts"] > 0
    words.counts.clear()
    again = go(["ThreeLists", "oracle", "Mined"])
    assert again.rows == first.rows
    assert not words.counts


def test_other_detectors_read_kept_embeddings(go, words):
    go(["oracle"])
    words.counts.clear()
    go(["oracle"], detectors=("msp", "neglabel", "eoe"))
    assert not words.counts["texts"]


def test_a_changed_list_is_scored_again(go, words, monkeypatch):
    before = go(["ThreeLists"])
    monkeypatch.setenv("TINY_WORD", "ant-lion")
    after = go(["ThreeLists"])
    old, new = (row(found, "neglabel", "birds", replicate=0) for found in (before, after))
    assert old["vocabulary_digest"] != new["vocabulary_digest"]
    assert row(before, "msp", "birds") == row(after, "msp", "birds")


def test_a_vocabulary_that_cannot_be_read_fails_alone(go):
    found = go(["Gone", "ThreeLists"])
    assert {r["reason"] for r in found.failed} == {"the list is gone; write it again"}
    assert {r["vocabulary"].rpartition(":")[2] for r in found.rows if r["vocabulary"]} == {"ThreeLists"}


def test_without_class_names_every_cell_is_refused_with_the_way_out(go):
    found = go(["oracle"], benchmark="WordsBenchmark(named=False)")
    assert not found.rows
    assert {r["status"] for r in found.failed} == {"refused"}
    assert "a name for each class" in found.failed[0]["reason"]


def test_what_only_a_vision_language_model_can_give_is_no_cell_of_a_classifier(words):
    data = {
        "name": "both",
        "benchmark": "digits",
        "backbones": ["digits-cnn", "digits-clip"],
        "detectors": ["msp", "neglabel", "gl-mcm"],
        "vocabularies": ["oracle"],
    }
    plan = resolve(suites.read(json.dumps(data)))
    cells = {(c.backbone, c.column) for c in plan.cells}
    assert cells == {("digits-cnn", "msp"), *(("digits-clip", c) for c in ("msp", "neglabel · oracle", "gl-mcm"))}
    assert set(plan.left_out) == {"neglabel · oracle with digits-cnn", "gl-mcm with digits-cnn"}


# -- names ----------------------------------------------------------------------------------------------------------


class Listed(fiood.Dataset):
    info = Info(title="a list")

    def __init__(self, targets, concepts):
        self._view = View("x", [f"{i}" for i in range(len(targets))], targets=targets, concepts=concepts)

    def view(self):
        return self._view

    def open(self, image_id):
        pytest.fail(f"names need no picture, but {image_id} was opened")


def test_names_come_from_pictures_with_index_and_concept():
    concepts = [Concept("hen"), Concept("ant"), None, Concept("hen")]
    assert class_names(Listed([(1,), (0,), (1,), (1,)], concepts)) == ("ant", "hen")


def test_a_class_with_two_names_is_refused():
    with pytest.raises(InputError, match="calls class 0 both 'ant' and 'hen'"):
        class_names(Listed([(0,), (0,)], [Concept("ant"), Concept("hen")]))


def test_a_class_without_a_name_is_refused():
    with pytest.raises(InputError, match="a name for each class, and a list gives 1"):
        class_names(Listed([(1,), (0,)], [Concept("hen"), None]))


def test_names_of_imagenet_classes_go_by_wordnet_id(tmp_path):
    from PIL import Image

    for wnid in ("n01440764", "n02123045"):
        (tmp_path / wnid).mkdir()
        Image.new("RGB", (2, 2)).save(tmp_path / wnid / "a.png")
    names = class_names(fiood.dataset("folder", path=str(tmp_path)))
    assert len(names) == 1000
    assert (names[0], names[281]) == ("tench", "tabby cat")


def test_equal_names_share_a_row_that_stands_for_their_classes(words):
    shared = words.Shown(("ant", "bee", "ant"), inside=True)
    head = ZeroShot(words.TinyText(), shared).head
    assert head.num_rows == 2
    assert head.classes == ((0, 2), (1,))


def test_a_mining_vocabulary_without_a_model_is_refused(words):
    with pytest.raises(InputError, match="name a backbone"):
        labels_for(words.Mined(), ["ant"])


# -- text embeddings ------------------------------------------------------------------------------------------------


def test_braces_in_a_label_stay_and_no_grammar_is_mended():
    assert text.render_prompts("a {} {x}", ["a photo of a {}."]) == ["a photo of a a {} {x}."]


def test_an_ensemble_is_a_unit_vector_whatever_the_lengths():
    embeddings = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(0)) * 7
    torch.testing.assert_close(text.text_ensemble(embeddings).norm(dim=1), torch.ones(3))


def test_prompts_that_cancel_out_are_refused():
    with pytest.raises(InputError, match="cancel out"):
        text.text_ensemble([[1.0, 0.0], [-1.0, 0.0]])


def test_embeddings_go_on_at_the_first_missing_shard_with_the_same_bits(words, monkeypatch):
    monkeypatch.setattr(text, "SHARD_LABELS", 4)
    labels = [f"label {i}" for i in range(10)]
    whole = text.LabelEmbeddings(words.TinyText(), root=settings.home() / "whole")(labels)
    encode = words.TinyText.encode_text

    class Interrupt(Exception):
        pass

    class Stopping(words.TinyText):
        def encode_text(self, texts):
            if words.counts["texts"] >= 8 * len(text.TEMPLATES):
                raise Interrupt
            return encode(self, texts)

    words.counts.clear()
    with pytest.raises(Interrupt):
        text.LabelEmbeddings(Stopping())(labels)
    embeddings = text.LabelEmbeddings(words.TinyText())
    assert embeddings.missing(labels) == 2
    words.counts.clear()
    assert torch.equal(embeddings(labels), whole)
    assert words.counts["texts"] == 2 * len(text.TEMPLATES)


def test_a_damaged_shard_is_embedded_again(words):
    embeddings = text.LabelEmbeddings(words.TinyText())
    first = embeddings(["a", "b"]).clone()
    (shard,) = embeddings.root.rglob("*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1] + b"\0")
    assert torch.equal(embeddings(["a", "b"]), first)


def test_other_templates_or_another_order_are_other_embeddings(words):
    embeddings = text.LabelEmbeddings(words.TinyText())
    embeddings(["a", "b"])
    assert embeddings.missing(["b", "a"]) == 2
    assert text.LabelEmbeddings(words.TinyText(), templates=["{}"]).missing(["a", "b"]) == 2


def test_an_empty_list_has_no_embeddings(words):
    with pytest.raises(InputError, match="no labels to embed"):
        text.LabelEmbeddings(words.TinyText())([])


# -- WordNet ----------------------------------------------------------------------------------------------------------


def installed():
    try:
        return wordnet.load()
    except DataError as missing:
        pytest.skip(str(missing))


def test_every_imagenet_class_is_a_synset():
    lexicon = installed()
    assert sum(wnid in lexicon.words for wnid in wnids()) == 1000
    assert lexicon.synonyms("n02123045") == ("tabby", "tabby cat")


def test_a_wordnet_id_of_another_version_is_refused():
    with pytest.raises(DataError, match="n99999999"):
        installed().synonyms("n99999999")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_is_read_without_unpacking(tmp_path, kind):
    import tarfile
    import zipfile

    source = Path(installed().source)
    archive = tmp_path / f"wordnet.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as bundle:
            for name in wordnet.FILES:
                bundle.write(source / name, f"wordnet/{name}")
    else:
        with tarfile.open(archive, "w:gz", compresslevel=1) as bundle:
            for name in wordnet.FILES:
                bundle.add(source / name, f"dict/{name}")
    assert wordnet.load(str(archive)).nouns == installed().nouns
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


def test_another_version_of_wordnet_is_refused(tmp_path):
    (tmp_path / "data.noun").write_text("00001740 03 n 01 entity 0 000 | x\n")
    (tmp_path / "data.adj").write_text("00001740 00 a 01 able(p) 0 000 | x\n")
    with pytest.raises(DataError, match=r"gives 2 head lemmas .* not WordNet 3\.0"):
        wordnet.load(str(tmp_path))


def test_where_wordnet_is_not_the_message_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match="wordnet-base"):
        wordnet.load(str(tmp_path / "none"))


def test_a_plan_in_words_tells_of_names_and_kept_features(go, words, tmp_path):
    from fiood_core.explain import explain

    data = {
        "name": "words",
        "benchmark": f"{TINY}:WordsBenchmark",
        "backbones": [f"{TINY}:TinyText"],
        "detectors": ["neglabel"],
        "vocabularies": ["oracle"],
        "settings": {"device": "cpu", "batch_size": 8, "precision": "float64"},
    }
    plan = resolve(suites.read(json.dumps(data)))
    before, _ = explain(plan, tmp_path / "out", tmp_path / "store")
    assert "classes: 4 names, 0 embedded" in before
    go(["oracle"], detectors=("neglabel",))
    after, _ = explain(resolve(plan.suite), tmp_path / "out", tmp_path / "store")
    assert "classes: 4 names, 4 embedded" in after
    assert "set birds (far): 48 pictures, 48 cached" in after
    assert "neglabel · oracle × mammals, birds, unnamed: reads features, logits, negatives; 2 of 3 kept" in after


@pytest.mark.parametrize("name", ["fi-imagenet-1k-zero-shot", "fi-imagenet-1k-eoe"])
def test_the_papers_suites_ask_for_what_exists(name, monkeypatch):
    monkeypatch.setenv("FIOOD_OFFLINE", "1")
    plan = resolve(suites.load(HERE.parent / "benchmarks" / "suites" / f"{name}.yaml"))
    assert not plan.wrong
    assert all(
        ("not on this machine" in b.problem.reason or "could not be fetched" in b.problem.reason)
        for b in plan.backbones
        if b.problem
    )
