"""The accuracy gate: before any score is believed, the classifier must be as accurate as it is known to be.

An accuracy that is off has one of two common causes.  *Labels* in another order than the model's classes: then some
relabelling, one class to one class, gives the accuracy back.  A wrong *transform*: then none does.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fiood_core.errors import GateError
from fiood_core.imagenet import WNID, devkit_wnids

if TYPE_CHECKING:
    from fiood_core.backbone import Backbone
    from fiood_core.extract import Extracted
    from fiood_core.features import FeatureSet

TOLERANCE = 0.01
"""How far top-1 may be from the expectation: one point."""

STRIKING = 0.3
"""How much accuracy a relabelling must give back before it stops a run whose accuracy nobody declared."""

MANY = 20
"""Pictures from which labels that are all the same are no accident."""

CHANCE = 1e-6
"""How likely a relabelling may be to explain as much by luck, over all that are tried."""


@dataclass(frozen=True)
class GateReport:
    """What the gate found.

    Attributes
    ----------
    message : str
        One sentence for the run's record.
    top1 : float or None
        Share of labelled pictures whose predicted class is one of their targets; None without labels.
    expected : float or None
        What was declared; None if nothing was.
    count : int
        Labelled pictures.
    wrong : tuple of int or None
        Rows whose predicted class is none of their targets, rows without a target among them; None without labels.
    """

    message: str
    top1: float | None
    expected: float | None
    count: int
    wrong: tuple[int, ...] | None = None


def check_accuracy(
    backbone: Backbone, dataset_name: str, extracted: Extracted, expected: float | None = None
) -> GateReport:
    """Hold a backbone's accuracy on the ID test set to what is declared.

    Parameters
    ----------
    backbone : Backbone
    dataset_name : str
    extracted : Extracted
        Features or logits of the ID test set.
    expected : float, optional
        Top-1 as a fraction, from the suite; else the backbone's card decides, by the set's name or by the digest of
        its ids (:func:`ids_key`).

    Raises
    ------
    GateError
        Top-1 is more than one point off, or a relabelling explains it so well that the labels must be wrong.  The
        message says whether it looks like labels or like the transform.
    """
    view = extracted.view
    if expected is None:
        declared = backbone.card.expected_top1
        expected = declared.get(dataset_name, declared.get(ids_key(view.ids)))
    targets = view.targets or ()
    rows = [row for row, target in enumerate(targets) if target]
    if not rows:
        return GateReport(f"{dataset_name} has no labels, so its accuracy cannot be checked", None, expected, 0)
    classes = _classes(extracted.features)
    predicted = [classes[number] for number in _predicted_rows(extracted.features)]
    found = _Found(
        title=f"{backbone.card.title} on {dataset_name}",
        predicted=[predicted[row] for row in rows],
        targets=[targets[row] for row in rows],
        ids=[view.ids[row] for row in rows],
        num_classes=1 + max(max(row, default=-1) for row in classes),
    )
    found.check_range()
    if expected is None:
        message = _undeclared(found, backbone)
    elif abs(found.top1 - expected) <= TOLERANCE + 1e-9:
        message = f"{found} as expected ({expected:.1%})"
    else:
        raise GateError(_off(found, backbone, expected))
    wrong = tuple(row for row, target in enumerate(targets) if set(predicted[row]).isdisjoint(target))
    return GateReport(message, found.top1, expected, len(rows), wrong)


def ids_key(ids: Iterable[str]) -> str:
    """What a card may declare an accuracy under where a set has no name: ``ids:`` and the SHA-256 of its sorted ids."""
    return f"ids:{hashlib.sha256(chr(10).join(sorted(ids)).encode()).hexdigest()}"


@dataclass(frozen=True)
class _Found:
    """The classes that each picture's largest logit stands for, beside the picture's targets."""

    title: str
    predicted: Sequence[tuple[int, ...]]
    targets: Sequence[tuple[int, ...]]
    ids: Sequence[str]
    num_classes: int

    @property
    def top1(self) -> float:
        hits = sum(not set(p).isdisjoint(t) for p, t in zip(self.predicted, self.targets, strict=True))
        return hits / len(self.targets)

    @property
    def labels(self) -> np.ndarray:
        """The first target of each picture (n,)."""
        return np.array([target[0] for target in self.targets])

    @property
    def guesses(self) -> np.ndarray:
        """The first predicted class of each picture (n,); -1 where the logit stands for none."""
        return np.array([min(classes, default=-1) for classes in self.predicted])

    def __str__(self) -> str:
        return f"{self.title}: top-1 is {self.top1:.1%} of {len(self.targets)} pictures,"

    def check_range(self) -> None:
        """Refuse labels that the model has no class for."""
        highest = max(max(target) for target in self.targets)
        if highest >= self.num_classes:
            raise GateError(
                f"{self.title}: this looks like labels: the set has label {highest}, the model has classes 0 to "
                f"{self.num_classes - 1}; check whether the labels start at 1 or belong to another label space"
            )


@dataclass(frozen=True)
class _Relabelling:
    """A one-to-one change of labels.

    ``share`` of ``count`` pictures are right under it, ``gain`` more than under the labels as they are; unrelated
    predictions would do as well with probability ``luck``.
    """

    description: str
    share: float
    gain: float
    count: int
    luck: float


def _undeclared(found: _Found, backbone: Backbone) -> str:
    best = _best_relabelling(found, backbone)
    if best is not None and best.gain >= STRIKING:
        raise GateError(f"{found} and this looks like labels: {_explained(best)}")
    if _is_constant(found):
        raise GateError(
            f"{found} and this looks like labels: all of them are {found.labels[0]}, while predictions are of "
            f"{len(np.unique(found.guesses))} classes; if the set is of one class, declare its expected_top1"
        )
    doubt = " and which is no better than chance" if _is_scrambled(found) else ""
    return f"{found} which nothing declares{doubt}; to have it checked, give expected_top1 in the suite or the card"


def _off(found: _Found, backbone: Backbone, expected: float) -> str:
    start = f"{found} but {expected:.1%} is expected"
    if found.top1 > expected:
        return f"{start}; it is higher, so this is not the set, or not the model, that the expectation speaks of"
    best = _best_relabelling(found, backbone)
    if best is not None and best.gain > (expected - found.top1) / 2:
        rest = "" if expected - best.share <= 0.05 else "; what then remains looks like the transform"
        return f"{start}; this looks like labels: {_explained(best)}{rest}"
    if _is_scrambled(found):
        return (
            f"{start}; this looks like labels: predictions are as varied as the labels but agree with none of them, "
            "and no known order explains it; map labels to the model's classes by name or wnid"
        )
    return (
        f"{start}; this looks like the transform (or the weights): no reordering of classes explains it. Compare mean "
        "and deviation, channel order, resize, crop and interpolation with the model's own; this one is "
        f"{' '.join(repr(backbone.transform).split())}"
    )


def _explained(best: _Relabelling) -> str:
    return (
        f"{best.description} gives {best.share:.1%} of {best.count}; map labels to the model's classes by name or wnid"
    )


def _best_relabelling(found: _Found, backbone: Backbone) -> _Relabelling | None:
    """The relabelling that explains most, if luck could not."""
    candidates = [candidate for candidate in _relabellings(found, backbone) if candidate.luck < CHANCE]
    return max(candidates, key=lambda candidate: candidate.gain, default=None)


def _relabellings(found: _Found, backbone: Backbone) -> Iterator[_Relabelling]:
    labels, guesses = found.labels, found.guesses
    present = np.unique(labels)
    yield from _orders(labels, guesses, np.arange(found.num_classes), "classes")
    if len(present) < found.num_classes:
        yield from _orders(labels, guesses, present, "the classes present")
    index = {wnid: row for row, wnid in enumerate(backbone.class_wnids or ())}
    yield from _by_wnid(found, index)
    yield from _by_devkit(labels, guesses, index)
    if found.num_classes > len(present) == present[-1] + 1:
        yield from _by_rank(labels, guesses)
    yield from _matched(labels, guesses)


def _orders(labels: np.ndarray, guesses: np.ndarray, domain: np.ndarray, what: str) -> Iterator[_Relabelling]:
    """Reversed and string-sorted orders of a sorted set of classes, each shifted by any number."""
    m, n = len(domain), len(labels)
    place = np.full(int(max(domain.max(), labels.max(), guesses.max())) + 1, -1)
    place[domain] = np.arange(m)
    by_string = np.array(sorted(range(m), key=lambda k: str(domain[k])))
    from_one = np.array(sorted(range(m), key=lambda k: str(domain[k] + 1)))
    bases: dict[str, np.ndarray] = {
        "the numeric": np.arange(m),
        "the reversed": np.arange(m)[::-1],
        "the string-sorted (0, 1, 10, 100, …)": by_string,
        "the inverse string-sorted": np.argsort(by_string),
        "the string-sorted (1, 10, 100, …)": from_one,
        "the inverse string-sorted, from 1": np.argsort(from_one),
    }
    inside = (guesses >= 0) & (place[guesses] >= 0)
    right = float(np.mean(labels == guesses))
    for name, base in bases.items():
        steps = (place[guesses] - base[place[labels]]) % m
        counts = np.bincount(steps[inside], minlength=m)
        if name == "the numeric":
            counts[0] = 0  # that is the labels as they are
        shift = int(counts.argmax())
        shifted = f" shifted by {shift if shift <= m // 2 else shift - m}" if shift else ""
        share = counts[shift] / n
        luck = 2 * len(bases) * m * _tail(int(counts[shift]), n, _largest_share(labels))
        yield _Relabelling(f"{name} order of {what}{shifted}", share, share - right, n, luck)


def _by_wnid(found: _Found, index: Mapping[str, int]) -> Iterator[_Relabelling]:
    """Labels by the wnid folders in the ids."""
    wnids = [next((p for p in reversed(i.split("/")[:-1]) if WNID.fullmatch(p)), "") for i in found.ids]
    if index and all(wnid in index for wnid in wnids):
        labels = np.array([index[wnid] for wnid in wnids])
        yield _fixed("the wnid in each picture's path", labels, found.labels, found.guesses)


def _by_devkit(labels: np.ndarray, guesses: np.ndarray, index: Mapping[str, int]) -> Iterator[_Relabelling]:
    """Labels that are the ILSVRC development kit's ids, which begin at 1, or one less."""
    classes = np.array([index.get(wnid, -1) for wnid in devkit_wnids()])
    if (classes >= 0).all():
        for first in (0, 1):
            new = classes[(labels - first) % len(classes)]
            yield _fixed(f"the ILSVRC development kit's order, from {first},", new, labels, guesses)


def _by_rank(labels: np.ndarray, guesses: np.ndarray) -> Iterator[_Relabelling]:
    """Labels that number some of the classes in their order, as folders are numbered: classes rise with labels.

    The longest rising run of predictions, one a label, is the share explained; unrelated ones have one of about 2√m,
    with a spread of about the sixth root of m (Baik, Deift and Johansson, 1999).
    """
    present, first = np.unique(labels, return_index=True)
    m = len(present)
    rising: list[int] = []
    for guess in guesses[first].tolist():
        place = bisect.bisect_left(rising, guess)
        rising[place : place + 1] = [guess]
    share, right = len(rising) / m, float(np.mean(labels[first] == guesses[first]))
    luck = 0.0 if len(rising) > 2 * math.sqrt(m) + 10 * m ** (1 / 6) else 1.0
    if right < share / 2:  # a run rises past a few wrong predictions too, which must not count as a gain
        yield _Relabelling(
            "numbering the classes that are present, as the order of folders does,", share, share - right, m, luck
        )


def _matched(labels: np.ndarray, guesses: np.ndarray) -> Iterator[_Relabelling]:
    """Any one-to-one relabelling, learnt on every other picture of each class and tested on the rest.

    Classes with one picture take no part: a relabelling learnt from the picture that it is tested on explains anything.
    """
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(len(labels)) - np.repeat(starts, sizes)
    several = np.repeat(sizes, sizes) > 1
    learn, test = order[several & (rank % 2 == 0)], order[several & (rank % 2 == 1)]
    pairs = Counter(zip(labels[learn].tolist(), guesses[learn].tolist(), strict=True))
    relabel: dict[int, int] = {}
    taken = {-1}
    for (label, guess), _ in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        if label not in relabel and guess not in taken:
            relabel[label] = guess
            taken.add(guess)
    moved = sum(label != guess for label, guess in relabel.items())
    if moved:
        new = np.array([relabel.get(label, -1) for label in labels[test].tolist()])
        yield _fixed(f"another label for {moved} of {len(sizes)} classes", new, labels[test], guesses[test])


def _fixed(description: str, new: np.ndarray, labels: np.ndarray, guesses: np.ndarray) -> _Relabelling:
    """One relabelling that was not searched for among the pictures it is tested on."""
    n = len(labels)
    hits = int((new == guesses).sum())
    gain = (hits - int((labels == guesses).sum())) / n
    return _Relabelling(description, hits / n, gain, n, luck=_tail(hits, n, _largest_share(labels)))


def _largest_share(labels: np.ndarray) -> float:
    """How often predictions that know nothing are right at most: the share of the commonest label."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def _is_scrambled(found: _Found) -> bool:
    """Whether accuracy is at chance though the predictions are about as varied as the labels."""
    labels = found.labels
    distinct = len(np.unique(labels))
    chance = 1 / min(distinct, found.num_classes)
    at_chance = _tail(round(found.top1 * len(labels)), len(labels), chance) > 1e-3
    return distinct > 1 and at_chance and len(np.unique(found.guesses)) >= distinct / 2


def _is_constant(found: _Found) -> bool:
    """Whether all of many pictures have one label, with which most predictions disagree."""
    return len(found.targets) >= MANY and len(np.unique(found.labels)) == 1 and found.top1 < 0.5


def _tail(successes: int, trials: int, p: float) -> float:
    """Probability of at least that many successes in independent trials."""
    if p >= 1 or successes <= 0:
        return 1.0
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(p)
        + (trials - k) * math.log1p(-p)
        for k in range(successes, trials + 1)
    ]
    return min(1.0, math.fsum(math.exp(value) for value in logs))


def _classes(features: FeatureSet) -> Sequence[tuple[int, ...]]:
    """The classes that each logit stands for."""
    if features.head is not None and features.head.classes is not None:
        return features.head.classes
    return [(row,) for row in range(features.num_classes or 0)]


def _predicted_rows(features: FeatureSet) -> np.ndarray:
    """Number (n,) of the largest logit of each picture."""
    rows: np.ndarray = np.concatenate([block.predictions.numpy() for block in features.blocks()])
    return rows
