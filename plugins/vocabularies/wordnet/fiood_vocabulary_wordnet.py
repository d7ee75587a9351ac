"""WordNet 3.0's head lemmas, and those farthest from the ID names."""

from __future__ import annotations

from fiood_core import wordnet
from fiood_core.errors import InputError, ParameterError
from fiood_core.mining import farthest_first, similarity_quantiles
from fiood_core.vocabulary import Labels, Vocabulary, VocabularyContext, normalised, recorded


class WordNetLabels(Vocabulary):
    """The 79,403 head lemmas of all noun and adjective synsets, or NegMining's ``m`` farthest.

    Parameters
    ----------
    m : int, optional
        Labels to keep, farthest first; lists are prefixes of one order.  By default all, in alphabetical order.
    quantile : float
        Quantile over ID names of a label's similarity that counts as its nearness.  At 0.95 the nearest twentieth of
        the names is left out, so ID names themselves can be kept; the record counts them.
    per_pos : bool
        Keep the same fraction of nouns and of adjectives (a lemma that is both is a noun), as the released code does,
        nouns first.
    drop_id_names : bool
        Leave out labels that equal an ID name.
    source : str, optional
        Folder or archive of WordNet 3.0; by default wherever it is installed, see :func:`fiood_core.wordnet.load`.
    """

    content = wordnet.DIGEST

    def __init__(
        self,
        m: int | None = None,
        *,
        quantile: float = 0.95,
        per_pos: bool = False,
        drop_id_names: bool = False,
        source: str | None = None,
    ) -> None:
        if m is not None and m < 1:
            raise ParameterError(f"m must be at least 1, or None for all labels, got {m}")
        if not 0 <= quantile <= 1:
            raise ParameterError(f"quantile must lie in [0, 1], got {quantile}")
        self.m, self.quantile, self.per_pos, self.drop_id_names = m, quantile, per_pos, drop_id_names
        self.source = source
        self.needs_embeddings = m is not None

    def labels(self, context: VocabularyContext) -> Labels:
        """Candidates, mined if ``m`` is given."""
        lexicon = wordnet.load(self.source)
        names = lexicon.head_lemmas
        known = set(map(normalised, context.id_names))
        synonyms = {normalised(w) for wnid in context.id_wnids or () for w in lexicon.words.get(wnid, ())}
        candidates = len(names)
        if self.drop_id_names:
            names = [name for name in names if name not in known]
        if self.m is not None:
            names = self._mined(names, lexicon, context)
        return recorded(
            names,
            context,
            lexicon=wordnet.DIGEST,
            candidates=candidates,
            overlap_with_names_or_synonyms=sum(name in known or name in synonyms for name in names),
        )

    def _mined(self, names: list[str], lexicon: wordnet.WordNet, context: VocabularyContext) -> list[str]:
        if context.embed is None or context.id_embeddings is None:
            raise InputError("NegMining needs a model's text embeddings; the context has none")
        assert self.m is not None
        nearness = similarity_quantiles(context.embed(names), context.id_embeddings, self.quantile)
        order = [names[i] for i in farthest_first(nearness, names)]
        if not self.per_pos:
            return order[: self.m]
        nouns = set(lexicon.nouns)
        parts = [name for name in order if name in nouns], [name for name in order if name not in nouns]
        return [name for part in parts for name in part[: self.m * len(part) // len(order)]]
