"""One pass, any number of detectors: labels, sharing, isolation."""

import numpy as np
import pytest
import torch

import fiood_core as fiood
from fiood_core.errors import InputError, ParameterError, ResultError
from fiood_core.features import FeatureSet
from fiood_core.scoring import fit_all, score_fitted

RNG = np.random.default_rng(0)
HEAD = fiood.Head(RNG.standard_normal((4, 6)))
TRAIN = FeatureSet(features=RNG.standard_normal((200, 6)), labels=np.arange(200) % 4, head=HEAD)
TEST = FeatureSet(features=RNG.standard_normal((5000, 6)), head=HEAD, ids=[f"img{i}" for i in range(5000)])


class CountedRows:
    """Rows that note what was read of them."""

    def __init__(self, array):
        self.array, self.shape, self.reads = array, array.shape, []

    def __getitem__(self, rows):
        self.reads.append((rows.start, rows.stop))
        return self.array[rows]


def test_every_block_is_read_once_for_all_detectors():
    rows = CountedRows(TEST.features)
    detectors = {n: fiood.detector(n, precision=p) for n, p in (("energy", "float32"), ("mahalanobis", "float64"))}
    detectors |= {"relative": fiood.detector("relative-mahalanobis"), "cosine": fiood.detector("cosine")}
    fit_all(detectors, TRAIN)
    score_fitted(detectors, FeatureSet(features=rows, head=HEAD))
    assert len(rows.reads) == len(set(rows.reads)) == 3


def test_scoring_together_is_scoring_alone():
    names = [
        "energy",
        "react",
        "mahalanobis",
        "relative-mahalanobis",
        "mahalanobis++",
        "cosine",
        "mcm",
        "vim(dim=3)",
        "nac",
    ]
    table = fiood.score_all(names, TRAIN, {"test": TEST})
    for name in names:
        np.testing.assert_array_equal(
            fiood.score_all([name], TRAIN, {"test": TEST})[name]["test"], table[name]["test"], err_msg=name
        )


def test_labels_are_the_strings_and_the_names_of_instances():
    class Own(type(fiood.detector("msp"))):
        """Its own."""

    given = ["knn(k=5)", fiood.detector("knn", k=7), Own()]
    assert list(fiood.score_all(given, TRAIN, {"test": TEST})) == ["knn(k=5)", "knn", "Own"]
    table = fiood.score_all({"five": "knn(k=5)", "seven": fiood.detector("knn", k=7)}, TRAIN, {"test": TEST})
    assert (table["five"]["test"] >= table["seven"]["test"]).all()
    with pytest.raises(ParameterError, match="two detectors are labelled 'knn'"):
        fiood.score_all([fiood.detector("knn", k=5), fiood.detector("knn", k=7)], TRAIN, {})


def test_a_detector_that_fails_while_scoring_is_left_out_and_named():
    class Late(type(fiood.detector("msp"))):
        """Fails in the second block."""

        def score_block(self, block):
            return super().score_block(block) / (0 if block.start else 1)

    errors = {}
    scores = score_fitted({"late": Late(), "msp": fiood.detector("msp")}, TEST, on_error=errors.__setitem__)
    assert list(scores) == ["msp"]
    assert isinstance(errors["late"], ResultError)
    assert "img2048" in str(errors["late"])


def test_features_and_a_head_stand_in_for_logits():
    with_logits = FeatureSet(features=TEST.features, logits=HEAD(torch.from_numpy(TEST.features)).numpy(), head=HEAD)
    for name in ("msp", "max-logit", "energy", "gen", "kl-matching", "fdbd", "neco", "vim(dim=3)"):
        a, b = (
            fiood.score_all(
                {name: f"{name[:-1]}, precision=float64)" if "(" in name else f"{name}(precision=float64)"},
                TRAIN,
                {"t": t},
            )[name]["t"]
            for t in (TEST, with_logits)
        )
        np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=name)
    with pytest.raises(InputError, match="logits are missing"):
        fiood.detector("msp").score(FeatureSet(features=TEST.features))


def test_labels_may_go_beyond_the_logits_where_names_are_shared():
    head = fiood.Head(RNG.standard_normal((2, 6)), classes=[(0, 2), (1,)])
    FeatureSet(features=TRAIN.features[:3], labels=np.array([0, 1, 2]), head=head)
    with pytest.raises(InputError, match="label 3 is outside the 3 classes"):
        FeatureSet(features=TRAIN.features[:1], labels=np.array([3]), head=head)


def test_an_empty_training_set_is_named():
    with pytest.raises(InputError, match="there are none"):
        fiood.detector("react").fit(FeatureSet(features=np.empty((0, 6)), head=HEAD))


def test_nothing_to_score_gives_no_scores():
    assert fiood.detector("msp").score(FeatureSet(logits=np.empty((0, 4)))).shape == (0,)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[::-1].copy()[::-1],
        lambda rows: np.asfortranarray(rows)[:, ::-1].copy()[:, ::-1],
        lambda rows: rows.astype(">f8"),
        lambda rows: rows.astype(">f8")[::-1].copy()[::-1],
        lambda rows: np.lib.stride_tricks.as_strided(rows, writeable=False),
    ],
)
def test_how_an_array_lies_in_memory_changes_nothing(change):
    scores = fiood.detector("energy").score(FeatureSet(features=change(TEST.features), head=HEAD))
    np.testing.assert_array_equal(scores, fiood.detector("energy").score(TEST))


@pytest.mark.parametrize("dtype", [complex, object, str])
def test_rows_are_real_numbers(dtype):
    with pytest.raises(InputError, match="features must be real numbers"):
        FeatureSet(features=np.ones((3, 6)).astype(dtype))


def test_a_complex_tensor_is_not_cut_to_its_real_part():
    with pytest.raises(InputError, match="logits must be real numbers"):
        FeatureSet(logits=torch.ones(3, 6, dtype=torch.complex64))


@pytest.mark.parametrize("weight", [torch.ones(3, 6, dtype=torch.complex64), np.ones((3, 6), complex), [["a", "b"]]])
def test_a_head_of_anything_but_real_numbers_is_refused(weight):
    with pytest.raises(InputError, match="head weight must be real numbers"):
        fiood.Head(weight)


@pytest.mark.parametrize("head", [torch.nn.Linear(6, 4), (HEAD.weight, None)])
def test_what_is_no_head_is_refused(head):
    with pytest.raises(InputError, match=r"must be a Head, got .*Head\(weight, bias\)"):
        FeatureSet(features=TEST.features, head=head)
    with pytest.raises(InputError, match="negatives must be a Head"):
        FeatureSet(features=TEST.features, negatives=head)


def test_scores_of_a_tensor_with_gradients_are_evaluated_and_words_are_refused():
    scores = torch.tensor([1.0, 2.0], requires_grad=True)
    assert fiood.evaluate(scores, scores - 2).auroc == 1.0
    with pytest.raises(ResultError, match="OOD scores must be numbers"):
        fiood.evaluate(scores, ["low"])


LEARNING = {name: {} for name in ("mahalanobis", "relative-mahalanobis++", "neco", "cosine", "fdbd", "dice")}


@pytest.mark.parametrize(("name", "given"), [*LEARNING.items(), ("knn", {"k": 5}), ("vim", {"dim": 3})])
@pytest.mark.parametrize("width", [1, 5])
def test_rows_of_another_width_than_the_training_set_s_are_refused(name, given, width):
    detector = fiood.detector(name, **given).fit(TRAIN)
    with pytest.raises(InputError, match=rf"fitted to features of width 6, got features of width {width}"):
        detector.score(FeatureSet(np.ones((3, width)), logits=np.ones((3, 4))))
    restored = type(detector).from_state(detector.state())
    with pytest.raises(InputError, match="of width 6"):
        restored.score(FeatureSet(np.ones((3, width)), logits=np.ones((3, 4))))


def test_logits_of_another_number_of_classes_are_refused():
    detector = fiood.detector("kl-matching").fit(TRAIN)
    with pytest.raises(InputError, match="logits of width 4, got logits of width 1"):
        detector.score(FeatureSet(logits=np.ones((3, 1))))


@pytest.mark.parametrize("name", ["react", "dice", "nac"])
def test_a_detector_that_was_fitted_with_a_head_needs_none_beside_features_and_logits(name):
    detector = fiood.detector(name).fit(TRAIN)
    bare = FeatureSet(TEST.features, logits=HEAD(torch.from_numpy(TEST.features)).numpy())
    np.testing.assert_allclose(detector.score(bare), detector.score(TEST), rtol=1e-5)
