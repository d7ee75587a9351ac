"""The OOD set's own labels: what a vocabulary could reach at best."""

from __future__ import annotations

from fiood_core import wordnet
from fiood_core.dataset import Concept
from fiood_core.errors import DataError
from fiood_core.vocabulary import Labels, Vocabulary, VocabularyContext, recorded


class Oracle(Vocabulary):
    """Distinct names of the concepts in the OOD set, in order of first appearance.

    A concept that has a WordNet id alone is named by the first word of its synset.  Nothing is mined, banned or cut.
    It knows the answer, so it is a lower bound on the error and no detector.
    """

    needs_ood = True

    def labels(self, context: VocabularyContext) -> Labels:
        """The concepts' names."""
        concepts = context.ood.concepts if context.ood is not None else None
        names = [_name(concept) for concept in concepts or () if concept is not None]
        if not names:
            raise DataError("the oracle needs an OOD set whose pictures have labels; this one has none")
        return recorded(dict.fromkeys(names), context, labelled_pictures=len(names))


def _name(concept: Concept) -> str:
    name = concept.name
    if not name.strip() and concept.wnid is not None:
        name = wordnet.load().synonyms(concept.wnid)[0]
    return " ".join(name.replace("_", " ").split())
