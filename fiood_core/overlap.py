"""Classes of an OOD set that are ID classes, kinds of them, or what they are kinds of, by WordNet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fiood_core.dataset import Concept
from fiood_core.wordnet import WordNet

RELATIONS = ("same", "hypernym", "hyponym", "synonym")
"""What an OOD class can be to an ID class: the same synset, above it, below it, or another one that shares a word."""


@dataclass(frozen=True)
class Overlap:
    """An OOD class that is related to ID classes.

    Attributes
    ----------
    concept : Concept
        As the OOD set has it.
    wnid : str
        The synset that it was taken for.
    relation : str
        One of :data:`RELATIONS`.
    id_wnids : tuple of str
        The ID classes.
    pictures : int
        Of that class in the OOD set.
    """

    concept: Concept
    wnid: str
    relation: str
    id_wnids: tuple[str, ...]
    pictures: int


@dataclass(frozen=True)
class ClassOverlap:
    """What WordNet says of an OOD set's classes.

    Attributes
    ----------
    classes : int
        Classes that the set names.
    unresolved : tuple of Concept
        Those that no synset, or more than one, fits; nothing is said of them.
    found : tuple of Overlap
    """

    classes: int
    unresolved: tuple[Concept, ...]
    found: tuple[Overlap, ...]

    def of(self, relation: str) -> list[Overlap]:
        """The overlaps of one kind."""
        return [overlap for overlap in self.found if overlap.relation == relation]


def class_overlap(concepts: Mapping[Concept, int], id_wnids: Sequence[str], words: WordNet) -> ClassOverlap:
    """How the classes of an OOD set relate to ID classes.

    Parameters
    ----------
    concepts : mapping from Concept to number of pictures
        A concept with a name alone is taken for the one synset that has that word, or that name as all of its words in
        a row, as ImageNet-O's file names do.
    id_wnids : sequence of str
    words : WordNet
    """
    ids = set(id_wnids)
    above: dict[str, list[str]] = defaultdict(list)
    sharing: dict[str, list[str]] = defaultdict(list)
    for inside in sorted(ids):
        for ancestor in words.ancestors(inside):
            above[ancestor].append(inside)
        for word in words.synonyms(inside):
            sharing[word.casefold()].append(inside)
    unresolved, found = [], []
    for concept, pictures in concepts.items():
        wnid = concept.wnid or _only(words.called(concept.name))
        if wnid is None or wnid not in words.words:
            unresolved.append(concept)
            continue
        shared = {other for word in words.synonyms(wnid) for other in sharing.get(word.casefold(), ())} - {wnid}
        related = {
            "same": [wnid] if wnid in ids else [],
            "hypernym": above.get(wnid, []),
            "hyponym": sorted(words.ancestors(wnid) & ids),
            "synonym": sorted(shared),
        }
        found += [Overlap(concept, wnid, kind, tuple(to), pictures) for kind, to in related.items() if to]
    return ClassOverlap(len(concepts), tuple(unresolved), tuple(found))


def _only(wnids: Sequence[str]) -> str | None:
    """The synset of a name, where it has one alone."""
    return wnids[0] if len(wnids) == 1 else None
