"""The accuracy gate: what it lets pass, what it stops, and which cause it names."""

from types import SimpleNamespace

import numpy as np
import pytest

import fiood_core as fiood
from fiood_core import imagenet
from fiood_core.dataset import View
from fiood_core.errors import GateError
from fiood_core.gate import check_accuracy, ids_key

C = 1000
ACCURACY = 0.876


class Card:
    transform = "Compose(Resize(256), CenterCrop(224))"
    class_wnids = imagenet.wnids()

    def __init__(self, **expected):
        self.card = fiood.Card(title="Net", expected_top1=expected)


def predictions(truth, accuracy=ACCURACY, classes=C, seed=0):
    """Predicted classes of which exactly a share is right."""
    rng = np.random.default_rng(seed)
    wrong = rng.permutation(len(truth))[: round(len(truth) * (1 - accuracy))]
    guesses = np.array(truth)
    guesses[wrong] = (guesses[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return guesses


def check(guesses, labels, *, expected=None, backbone=None, ids=None, classes=C, name="set", head=None):
    targets = [label if isinstance(label, tuple) else (int(label),) for label in labels]
    ids = ids or [f"{row}.png" for row in range(len(targets))]
    rows = classes if head is None else head.num_rows
    features = fiood.FeatureSet(logits=np.eye(rows)[guesses], head=head)
    extracted = SimpleNamespace(view=View("x", ids, targets=targets), features=features)
    return check_accuracy(backbone or Card(), name, extracted, expected)


@pytest.fixture(scope="module")
def truth():
    """One picture of each of 500 of 1000 classes, in no even steps."""
    return np.sort(np.random.default_rng(3).permutation(C)[:500])


@pytest.fixture(scope="module")
def guesses(truth):
    return predictions(truth)


def string_sorted(values):
    return np.array(sorted(values.tolist(), key=str))


DEVKIT = np.argsort([imagenet.class_index(wnid) for wnid in imagenet.devkit_wnids()])


def wrong_orders(truth):
    by_string = string_sorted(np.arange(C))
    return {
        "reversed": C - 1 - truth,
        "column reversed": truth[::-1],
        "shifted up": (truth + 1) % C,
        "shifted down": (truth - 1) % C,
        "column shifted": np.roll(truth, 1),
        "place in string order": np.argsort(by_string)[truth],
        "string order": by_string[truth],
        "string order from 1": np.argsort(np.array(sorted(range(C), key=lambda k: str(k + 1))))[truth],
        "column string-sorted": string_sorted(truth),
        "development kit": DEVKIT[truth],
        "numbered by folder": np.arange(len(truth)),
    }


@pytest.mark.parametrize("order", wrong_orders(np.arange(3)))
@pytest.mark.parametrize("expected", [ACCURACY, None])
def test_labels_in_another_order_are_stopped_as_labels_declared_or_not(truth, guesses, order, expected):
    labels = wrong_orders(truth)[order]
    with pytest.raises(GateError, match="looks like labels") as stop:
        check(guesses, labels, expected=expected)
    assert "transform" not in str(stop.value)


def test_the_development_kit_s_ids_are_named(truth, guesses):
    with pytest.raises(GateError, match=r"development kit's order, from 1, gives 87\.6%"):
        check(guesses[DEVKIT[truth] < C - 1], DEVKIT[truth][DEVKIT[truth] < C - 1] + 1)


def test_the_wnid_in_the_path_tells_of_any_order(truth, guesses):
    ids = [f"{imagenet.wnids()[label]}/x.png" for label in truth]
    with pytest.raises(GateError, match=r"labels: the wnid in each picture's path gives 87\.6%"):
        check(guesses, np.random.default_rng(0).permutation(truth), ids=ids)


def test_an_order_that_nothing_explains_is_still_labels_if_the_predictions_are_as_varied(truth, guesses):
    shuffled = np.random.default_rng(0).permutation(truth)
    with pytest.raises(GateError, match="labels: predictions are as varied"):
        check(guesses, shuffled, expected=ACCURACY)
    assert "no better than chance" in check(guesses, shuffled).message


@pytest.mark.parametrize("accuracy", [0.772, 0.5, 0.1])
def test_lower_accuracy_with_labels_in_order_is_the_transform(truth, accuracy):
    with pytest.raises(GateError, match=r"looks like the transform.*CenterCrop") as stop:
        check(predictions(truth, accuracy), truth, expected=ACCURACY)
    assert "label" not in str(stop.value)


def test_one_prediction_for_every_picture_is_the_transform(truth):
    with pytest.raises(GateError, match="looks like the transform"):
        check(np.full(500, 7), truth, expected=ACCURACY)


def test_both_causes_at_once_are_named(truth):
    with pytest.raises(GateError, match=r"looks like labels: the reversed.*then remains looks like the transform"):
        check(predictions(truth, 0.7), C - 1 - truth, expected=ACCURACY)


@pytest.mark.parametrize(("points", "passes"), [(0, True), (1, True), (-1, True), (1.2, False), (-1.2, False)])
def test_within_one_point_is_as_expected(truth, points, passes):
    accuracy = ACCURACY + points / 100
    if passes:
        report = check(predictions(truth, accuracy), truth, expected=ACCURACY)
        assert report.top1 == pytest.approx(accuracy)
        assert "as expected" in report.message
    else:
        with pytest.raises(GateError, match=r"87\.6% is expected"):
            check(predictions(truth, accuracy), truth, expected=ACCURACY)


def test_an_accuracy_above_the_expected_is_another_set(truth):
    with pytest.raises(GateError, match="not the set"):
        check(predictions(truth, 1.0), truth, expected=ACCURACY)


def test_the_expectation_is_the_suite_s_then_the_card_s_by_name_then_by_ids(truth, guesses):
    ids = [f"{row}.png" for row in range(500)]
    by_ids = Card(**{ids_key(reversed(ids)): 0.5})
    assert check(guesses, truth, ids=ids, expected=ACCURACY, backbone=by_ids).expected == ACCURACY
    with pytest.raises(GateError, match=r"50\.0% is expected"):
        check(guesses, truth, ids=ids, backbone=by_ids)
    by_both = Card(**{ids_key(ids): 0.5, "set": ACCURACY})
    assert check(guesses, truth, ids=ids, backbone=by_both).expected == ACCURACY


def test_where_nothing_is_declared_the_report_says_so(truth, guesses):
    report = check(guesses, truth)
    assert (report.top1, report.expected, report.count) == (pytest.approx(ACCURACY), None, 500)
    assert "nothing declares" in report.message


def test_one_label_for_many_varied_predictions_is_labels_and_a_declared_accuracy_lets_it_pass(guesses):
    constant = np.full(len(guesses), guesses[0])
    with pytest.raises(GateError, match=f"looks like labels: all of them are {guesses[0]}.*one class"):
        check(guesses, constant)
    assert check(guesses, constant, expected=float(np.mean(guesses == guesses[0]))).count == len(guesses)
    assert check(np.full(30, 7), np.full(30, 7)).top1 == 1.0
    assert check(guesses[:3], constant[:3]).count == 3


def test_the_wrong_rows_are_those_whose_prediction_is_no_target():
    assert check([0, 1, 2, 3], [(0,), (2, 1), (), (0,)], expected=2 / 3).wrong == (2, 3)
    assert check([0, 1], [(), ()]).wrong is None


def test_a_set_without_labels_is_reported_and_not_checked():
    features = fiood.FeatureSet(logits=np.eye(3))
    for targets in (None, [(), (), ()]):
        extracted = SimpleNamespace(view=View("x", list("abc"), targets=targets), features=features)
        report = check_accuracy(Card(), "set", extracted, 0.9)
        assert (report.top1, report.count) == (None, 0)
        assert "no labels" in report.message


def test_pictures_without_a_target_do_not_count_and_any_of_several_targets_is_right():
    report = check([0, 1, 2, 0], [(0, 5), (3, 1), (), (1,)], classes=6)
    assert (report.top1, report.count) == (pytest.approx(2 / 3), 3)


def test_a_row_that_stands_for_two_classes_is_right_for_both():
    head = fiood.Head(np.ones((3, 2)), classes=[(0, 2), (1,), (3,)])
    assert check([0, 0, 1, 2], [0, 2, 1, 3], head=head).top1 == 1.0


def test_a_label_beyond_the_classes_is_stopped_as_labels():
    with pytest.raises(GateError, match=r"labels: the set has label 6, the model has classes 0 to 5"):
        check([0, 1], [1, 6], classes=6)


def several_each(classes=10, each=30):
    return np.repeat(np.arange(classes), each)


def test_with_several_pictures_a_class_any_relabelling_is_found():
    truth = several_each()
    relabel = np.random.default_rng(5).permutation(10)
    with pytest.raises(GateError, match=r"labels: another label for \d+ of 10 classes"):
        check(predictions(truth, 0.9, 10), relabel[truth], classes=10, backbone=SimpleCard())


def test_two_classes_exchanged_are_stopped_as_labels():
    truth = several_each(6)
    labels = np.array([1, 0, 2, 3, 4, 5])[truth]
    for expected in (0.99, None):
        with pytest.raises(GateError, match="labels: another label for 2 of 6 classes"):
            check(predictions(truth, 0.99, 6), labels, expected=expected, classes=6, backbone=SimpleCard())


def test_a_little_too_low_with_several_pictures_a_class_is_the_transform():
    truth = several_each(6, 100)
    for seed in range(5):
        with pytest.raises(GateError, match="looks like the transform"):
            check(predictions(truth, 0.97, 6, seed), truth, expected=0.99, classes=6, backbone=SimpleCard())


def test_luck_explains_nothing_in_a_tiny_set():
    assert check([1, 2, 0], [0, 1, 2], classes=3).top1 == 0.0
    assert check([1, 0], [0, 1], classes=2).top1 == 0.0


class SimpleCard(Card):
    class_wnids = None


@pytest.mark.parametrize("seed", range(20))
def test_unrelated_predictions_are_never_explained(seed):
    rng = np.random.default_rng(seed)
    classes, n = int(rng.integers(2, 200)), int(rng.integers(2, 400))
    report = check(rng.integers(0, classes, n), rng.integers(0, classes, n), classes=classes, backbone=SimpleCard())
    assert "nothing declares" in report.message
