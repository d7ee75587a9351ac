"""The worked examples of every zero-shot score, through the functions that ``docs/reference/vlm.md`` names."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import fiood_core as fiood
from fiood_core import mining, text, value_branch, wordnet

pytestmark = pytest.mark.shared

SCORES = {
    "mcm": ("mcm", {}),
    "mcm_tau1_original": ("mcm", {}),
    "maxlogit": ("max-logit", {}),
    "energy": ("energy", {}),
    "gen": ("gen", {"gamma": "gamma", "m": "M"}),
    "entropy": ("entropy", {}),
    "margin_prob": ("margin", {}),
    "margin_logit": ("margin", {}),
}
"""Detector of each key of plain scores, and which of its parameters the case gives."""


@pytest.fixture(scope="module")
def cases(shared):
    return json.loads((shared / "golden" / "vlm_examples.json").read_text())["methods"]


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-10, atol=1e-12)


def score(name, given, **parameters):
    return fiood.detector(name, precision="float64", **parameters).score(given)[0]


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def test_templates_are_the_published_ones_in_order(cases, shared):
    meta = json.loads((shared / "golden" / "vlm_examples.json").read_text())["meta"]
    assert list(text.TEMPLATES) == meta["templates"]


def test_prompts(cases):
    for case in cases["render_prompts"]:
        assert text.render_prompts(case["label"]) == case["expected"]


def test_text_ensemble(cases):
    for case in cases["text_ensemble"]:
        close(text.text_ensemble(case["raw_template_embeddings"]), case["expected"])


def test_posterior(cases):
    for case in cases["posterior"]:
        close(text.posterior(case["cos_id"], case["tau"]), case["expected"])


@pytest.mark.parametrize("key", SCORES)
def test_scores_of_the_id_names_alone(cases, key):
    name, given = SCORES[key]
    own = {"space": "logit"} if key == "margin_logit" else {}
    for case in cases[key]:
        parameters = {**own, **{ours: case[theirs] for ours, theirs in given.items()}}
        close(score(name, text.from_cosines([case["cos_id"]], temperature=case["tau"]), **parameters), case["expected"])


def test_equal_names_are_scored_once(cases):
    for case in cases["pitfall_duplicate_id_names"]:
        cosines = case["cos_id"]
        given = text.from_cosines([cosines], temperature=case["tau"])
        close(score("mcm", given), case["mcm"])
        close(score("margin", given), case["margin_prob"])
        _, classes = text.distinct([str(cosine) for cosine in cosines])
        once = text.from_cosines([[cosines[rows[0]] for rows in classes]], temperature=case["tau"])
        close(score("mcm", once), case["mcm_after_dedupe"])


def test_gl_mcm(cases):
    from fiood_detector_gl_mcm import LocalMaximum, log_local_maximum

    for case in cases["gl_mcm"]:
        patches = [case["cos_patch"]]
        names = fiood.Head(torch.eye(len(case["cos_global"]), dtype=torch.float64), temperature=case["tau"])
        local = log_local_maximum(patches, names)
        close(local.exp()[0], case["l_mcm"])
        given = text.from_cosines([case["cos_global"]], temperature=case["tau"], columns={LocalMaximum().key: local})
        close(score("gl-mcm", given, weight=case["lam"]), case["expected"])


def test_value_branches(cases):
    families = {"open_clip": "open-clip", "timm": "timm-map", "AIMv2": "aimv2"}
    for case in cases["value_branch"]:
        family = next(ours for word, ours in families.items() if case["tower"].startswith(word))
        branch = value_branch.from_weights(family, case["weights"], prefix=case["drop_prefix"])
        close(branch(case["tokens_into_last_block"]), case["expected"])


def test_negmining(cases):
    for case in cases["negmining"]:
        quantiles = mining.similarity_quantiles(case["neg"], case["pos"], case["quantile"])
        close(quantiles, case["q_values"])
        assert mining.farthest_first(quantiles).tolist() == case["sorted_indices"]
        assert mining.negmining(case["neg"], case["pos"], case["M"], case["quantile"]) == case["expected"]


def test_neglabel(cases):
    for case in cases["neglabel"]:
        given = text.from_cosines([case["cos_id"]], [case["cos_neg"]], temperature=case["tau"])
        close(score("neglabel", given), case["expected"])
        close(score("neglabel", given, form="log-odds"), case["log_odds"])


def test_neglabel_grouped_as_released(cases):
    from fiood_detector_neglabel import grouped_scores

    for case in cases["neglabel_grouped_release"]:
        logits, negative = (tensor([case[key]]) / case["tau"] for key in ("cos_id", "cos_neg"))
        groups = grouped_scores(logits, negative, case["ngroup"], case["perm_after_drop"])
        close(groups[0], case["group_scores"])
        close(groups.mean(), case["expected"])
        given = text.from_cosines([case["cos_id"]], [case["cos_neg"]], temperature=case["tau"])
        close(score("neglabel", given), case["ungrouped_eq3"])


def test_eoe(cases):
    for case in cases["eoe"]:
        given = text.from_cosines([case["cos_id"]], [case["cos_outlier"]], temperature=case["tau"])
        close(score("eoe", given, beta=case["beta"]), case["expected"])
        close(score("eoe", given, beta=case["beta"], variant="share"), case["expected_share_variant"])


def test_eoe_parse(cases):
    from fiood_vocabulary_eoe import eoe_filter, eoe_parse, released_parse

    for case in cases["eoe_parse"]:
        if "replies" in case:
            assert eoe_parse(case["replies"]) == case["robust"]
            assert released_parse(case["replies"]) == case["release_joined_without_newline"]
            assert eoe_filter(case["robust"], case["id_names"]) == case["robust_after_dedupe_and_id_filter"]
        else:
            near = (case["candidates"], case["id_names"])
            assert eoe_filter(*near, shared_words=True) == case["case_insensitive"]
            assert eoe_filter(*near, shared_words=True, cased=True) == case["release_case_sensitive"]


def test_gpt_pool(cases):
    from fiood_vocabulary_llm_siblings import gpt_pool

    for case in cases["gpt_pool"]:
        pool, removed = gpt_pool(case["per_class"], case["banned_id_names_and_synonyms"], case["mode"])
        assert (pool, removed) == (case["expected"], case["removed_by_id_filter"])


def test_wordnet_head_lemmas(cases):
    for case in cases["wordnet_head_lemmas"]:
        if "line" in case:
            assert wordnet.head_lemma(case["line"]) == case["expected"]
        else:
            assert sorted(wordnet.head_lemmas(case["data_noun"], case["data_adj"])) == case["expected"]


def test_metrics(cases):
    for case in cases["metrics"]:
        metrics = fiood.evaluate(np.array(case["id_scores"]), np.array(case["ood_scores"]))
        close(metrics.fpr95, case["fpr95"])
        close(metrics.auroc, case["auroc"])
        close(metrics.threshold, case["threshold_5th_percentile_linear"])


def test_the_reference_page_names_a_function_for_every_key(cases):
    page = (Path(__file__).parent.parent / "docs" / "reference" / "vlm.md").read_text()
    assert set(cases) <= set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))
