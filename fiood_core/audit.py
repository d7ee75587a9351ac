"""What an OOD set has that it should not: ID classes, pictures of the ID sets, pictures twice; and what that costs.

A picture is flagged for each reason that holds of it:

=================  ===============================================================================================
``same``           its class is an ID class
``hypernym``       its class is what an ID class is a kind of, so it may show that class
``hyponym``        its class is a kind of an ID class, so it shows one
``synonym``        its class shares a word with an ID class; often two things of one name, so look before you believe
``in an ID set``   the same picture is in an ID set, byte for byte or to the eye
``repeated``       the same picture comes earlier in the set
=================  ===============================================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fiood_core import results, wordnet
from fiood_core.dataset import Concept, Dataset, View
from fiood_core.download import Progress
from fiood_core.errors import DataError
from fiood_core.lookalikes import DISTANCE, Pair, Prints, between, prints, within
from fiood_core.metrics import Metrics, evaluate
from fiood_core.overlap import RELATIONS, ClassOverlap, class_overlap

IN_ID, REPEATED = "in an ID set", "repeated"
REASONS = (*RELATIONS, IN_ID, REPEATED)
ANY = "any of these"
SHOWN = 5


@dataclass
class AuditedSet:
    """What was found in a set.

    Attributes
    ----------
    name : str
    role : str
        ``"id"`` or ``"ood"``.
    pictures : int
        0 where they are not on this machine.
    missing : tuple of str
        Why its pictures could not be looked at.
    classes : ClassOverlap or None
        None for an ID set, and where nothing is known of the classes.
    no_classes : str
        Why nothing is known of the classes.
    unreadable : tuple of (id, reason)
    plain : int
        Pictures of one colour, which are compared by content alone.
    repeated : list of Pair
        Its pictures that are the same.
    flags : mapping from reason to ids
    """

    name: str
    role: str
    pictures: int = 0
    missing: tuple[str, ...] = ()
    classes: ClassOverlap | None = None
    no_classes: str = ""
    unreadable: tuple[tuple[str, str], ...] = ()
    plain: int = 0
    repeated: list[Pair] = field(default_factory=list)
    flags: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Shared:
    """Pictures that two sets have in common, as pairs of an id of the one and an id of the other."""

    first: str
    second: str
    pairs: list[Pair]


@dataclass(frozen=True)
class WithAndWithout:
    """A result with all pictures, and without those flagged for a reason."""

    benchmark: str
    backbone: str
    column: str
    ood: str
    reason: str
    whole: Metrics
    left: Metrics


@dataclass
class Audit:
    """A whole audit.

    Attributes
    ----------
    distance : int
        Bits by which hashes of pictures that look the same differ at most.
    sets : list of AuditedSet
    shared : list of Shared
        Of each two sets that have pictures in common.
    metrics : list of WithAndWithout
    """

    distance: int
    sets: list[AuditedSet]
    shared: list[Shared]
    metrics: list[WithAndWithout] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """Everything as plain data."""
        return asdict(self)

    def text(self) -> str:
        """The numbers, with a few examples each."""
        return "\n".join([*self._sets(), *self._shared(), *self._metrics()])

    def _sets(self) -> Iterator[str]:
        for found in self.sets:
            yield f"{found.name} ({found.role}): {found.pictures:,} pictures looked at"
            yield from (f"  not looked at: {sentence}" for sentence in found.missing)
            if found.no_classes:
                yield f"  classes: {found.no_classes}"
            if found.classes is not None:
                yield from _class_lines(found.classes)
            if found.unreadable:
                yield f"  unreadable: {len(found.unreadable):,}, for one {found.unreadable[0][1]}"
            if found.plain:
                yield f"  of one colour, compared by content alone: {found.plain:,}"
            yield from _pair_lines("  repeated within the set", found.repeated)
            for reason, ids in found.flags.items():
                yield f"  flagged as {reason!r}: {len(ids):,} pictures"

    def _shared(self) -> Iterator[str]:
        for shared in self.shared:
            yield from _pair_lines(f"{shared.first} and {shared.second} share", shared.pairs)

    def _metrics(self) -> Iterator[str]:
        if not self.metrics:
            return
        rows = [("BENCHMARK", "BACKBONE", "DETECTOR", "OOD SET", "WITHOUT", "PICTURES", "AUROC", "FPR@95")]
        for m in self.metrics:
            rows.append(
                (
                    *(m.benchmark, m.backbone, m.column, m.ood, m.reason),
                    f"{m.whole.n_ood:,} → {m.left.n_ood:,}",
                    f"{100 * m.whole.auroc:.2f} → {100 * m.left.auroc:.2f}",
                    f"{100 * m.whole.fpr95:.2f} → {100 * m.left.fpr95:.2f}",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        yield from ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def audit(
    inside: Mapping[str, Dataset],
    outside: Mapping[str, Dataset],
    *,
    distance: int = DISTANCE,
    progress: Progress | None = None,
) -> Audit:
    """Compare OOD sets with ID sets and with one another.

    Parameters
    ----------
    inside, outside : mapping from name to Dataset
        ID sets (test, training) and OOD sets.  Where the pictures of one are not on this machine its classes are
        compared all the same.
    distance : int
        Bits by which hashes of pictures that look the same differ at most.
    progress : callable, optional
    """
    wnids = next((tuple(d.class_wnids) for d in inside.values() if d.class_wnids), ())
    sets: list[AuditedSet] = []
    looked_at: dict[str, Prints] = {}
    for role, datasets in (("id", inside), ("ood", outside)):
        for name, dataset in datasets.items():
            found = AuditedSet(name, role, missing=tuple(dataset.missing()))
            sets.append(found)
            if role == "ood":
                _compare_classes(found, dataset, wnids)
            if not found.missing:
                view = dataset.view()
                looked_at[name] = _look_at(found, dataset, view, distance, progress)
                _flag_classes(found, view)
    shared = _compare(sets, looked_at, distance)
    for found in sets:
        found.flags = {reason: found.flags[reason] for reason in REASONS if found.flags.get(reason)}
    return Audit(distance, sets, shared)


def with_and_without(audited: Audit, directory: Path) -> Iterator[WithAndWithout]:
    """Pooled results of a run for each flagged set, with its flagged pictures and without them.

    Raises
    ------
    ResultError
        The directory holds no results.
    """
    found = results.load(directory)
    flags = {s.name: {**s.flags, ANY: sorted({i for ids in s.flags.values() for i in ids})} for s in audited.sets}
    for row in found.rows:
        if row["subset"] != "all" or row["aggregation"] != "pooled" or not row["scores"]:
            continue
        reasons = {reason: ids for reason, ids in flags.get(row["ood"], {}).items() if ids}
        if not reasons:
            continue
        inside, outside = found.scores(row)
        whole = evaluate(inside.values, outside.values)
        for reason, ids in reasons.items():
            flagged = set(ids)
            left = np.array([image_id not in flagged for image_id in outside.ids])
            if left.any() and not left.all():
                rest = evaluate(inside.values, outside.values[left])
                yield WithAndWithout(row["benchmark"], row["backbone"], row["column"], row["ood"], reason, whole, rest)


def _compare_classes(found: AuditedSet, dataset: Dataset, wnids: Sequence[str]) -> None:
    if not wnids:
        found.no_classes = "the ID classes are no WordNet synsets, so they cannot be compared"
        return
    try:
        concepts = _concepts(dataset)
        if not concepts:
            found.no_classes = "the set's pictures carry no labels"
            return
        found.classes = class_overlap(concepts, wnids, wordnet.load())
    except DataError as error:
        found.no_classes = str(error)


def _concepts(dataset: Dataset) -> Mapping[Concept, int]:
    from fiood_core.listed import ListedDataset

    if isinstance(dataset, ListedDataset):
        return dataset.concepts()
    return Counter(concept for concept in dataset.view().concepts or () if concept is not None)


def _look_at(found: AuditedSet, dataset: Dataset, view: View, distance: int, progress: Progress | None) -> Prints:
    looked = prints(dataset, view.ids, progress, f"pictures of {found.name}")
    found.pictures, found.unreadable, found.plain = len(looked), looked.unreadable, int(looked.plain.sum())
    found.repeated = within(looked, distance)
    later = {pair.second for pair in found.repeated}
    if found.role == "ood":
        found.flags[REPEATED] = [image_id for image_id in looked.ids if image_id in later]
    return looked


def _flag_classes(found: AuditedSet, view: View) -> None:
    if found.classes is None or view.concepts is None:
        return
    of_reason: dict[str, set[Concept]] = defaultdict(set)
    for overlap in found.classes.found:
        of_reason[overlap.relation].add(overlap.concept)
    for reason, concepts in of_reason.items():
        found.flags[reason] = [i for i, c in zip(view.ids, view.concepts, strict=True) if c in concepts]


def _compare(sets: Sequence[AuditedSet], looked_at: Mapping[str, Prints], distance: int) -> list[Shared]:
    shared = []
    present = [found for found in sets if found.name in looked_at]
    for number, second in enumerate(present):
        for first in present[:number]:
            pairs = between(looked_at[first.name], looked_at[second.name], distance)
            if pairs:
                shared.append(Shared(first.name, second.name, pairs))
            if pairs and first.role == "id" and second.role == "ood":
                inside = {*second.flags.get(IN_ID, ()), *(pair.second for pair in pairs)}
                second.flags[IN_ID] = [i for i in looked_at[second.name].ids if i in inside]
    return shared


def _class_lines(classes: ClassOverlap) -> Iterator[str]:
    yield f"  classes: {classes.classes:,}, of which {len(classes.unresolved):,} are no single WordNet synset"
    for relation in RELATIONS:
        overlaps = classes.of(relation)
        if overlaps:
            pictures = sum(overlap.pictures for overlap in overlaps)
            shown = ", ".join(f"{o.concept.name or o.wnid} ({', '.join(o.id_wnids[:3])})" for o in overlaps[:SHOWN])
            yield f"  {relation} of an ID class: {len(overlaps):,} classes, {pictures:,} pictures: {shown}"


def _pair_lines(what: str, pairs: Sequence[Pair]) -> Iterator[str]:
    if not pairs:
        return
    exact = sum(pair.exact for pair in pairs)
    shown = "; ".join(f"{pair.first} = {pair.second}" for pair in pairs[:SHOWN])
    yield f"{what}: {exact:,} pairs byte for byte, {len(pairs) - exact:,} that look the same: {shown}"
