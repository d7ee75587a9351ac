"""Outlier classes that a language model envisions from the list of ID names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from fiood_core.errors import ParameterError
from fiood_core.generation import Conversation, GeneratedVocabulary, parse_items
from fiood_core.vocabulary import Labels, VocabularyContext, recorded, without

Style = Literal["fine-grained", "near", "far"]

FORM = "Answer with a list of exactly {count} items, one a line, each line beginning with '- ', and nothing else."

PROMPTS: dict[Style, tuple[str, str]] = {
    "fine-grained": (
        "A dataset holds pictures of {classes} different species or kinds of {subject}: {names}. "
        "Name {count} further, distinct species or kinds of {subject} that the dataset does NOT hold and that one "
        "could take for one of its own. For a dataset of ten dog breeds, for example, name other dog breeds. " + FORM,
        "Name {count} more species or kinds of {subject} that are neither in the dataset nor among those you named. "
        + FORM,
    ),
    "near": (
        "A classifier knows these {classes} categories: {names}. Name {count} categories that look like one of them "
        "but come from other and broader domains: not a kind of any of them, and not of the same primary group. For a "
        "husky, for example, a grey wolf is of its group, and a plush toy is not. " + FORM,
        "Name {count} more such categories, none of them known to the classifier or named before. " + FORM,
    ),
    "far": (
        "There are pictures of these {classes} categories: {names}. Sum up for yourself which broad visual categories "
        "they make, then name {count} categories that look similar to these broad categories but are not related to "
        "them. " + FORM,
        "Name {count} more of the same kind, each of at most three words, none named before. " + FORM,
    ),
}
"""First and follow-up prompt of each style.

Written for fiood after the description of the method: the prompts of Fi-ImageNet-1k are published as figures only.
"""


class EOELabels(GeneratedVocabulary):
    """Five hundred envisioned outlier names a generation, less the ID names.

    Every generation is one conversation over the whole list of ID names, and the same for every model.

    Parameters
    ----------
    style : {"fine-grained", "near", "far"}
        The prompt.
    total, per_call : int
        Names to ask for, and how many in one call; the others are follow-ups.
    subject : str
        What the classes are kinds of, in the fine-grained prompt.
    drop_shared_words : bool
        Leave out names that share a word with an ID name, as the released code does for its near prompt.
    generations : str, optional
        The generation file; by default ``generations/eoe-<style>.jsonl`` under the cache folder.
    """

    default_replicates = 30

    def __init__(
        self,
        style: Style = "fine-grained",
        *,
        total: int = 500,
        per_call: int = 50,
        subject: str = "object",
        drop_shared_words: bool = False,
        generations: str | Path | None = None,
    ) -> None:
        if style not in PROMPTS:
            raise ParameterError(f"style must be one of {', '.join(PROMPTS)}, got {style!r}")
        if not 1 <= per_call <= total or total % per_call:
            raise ParameterError(f"total must be a multiple of per_call, got {total} and {per_call}")
        self.style, self.total, self.per_call, self.subject = style, total, per_call, subject
        self.drop_shared_words = drop_shared_words
        self.kind = f"eoe-{style}"
        super().__init__(generations)

    def conversations(self, id_names: Sequence[str]) -> Sequence[Conversation]:
        """One conversation over all names, separated by semicolons."""
        names = list(dict.fromkeys(id_names))
        filled = {"classes": len(names), "names": "; ".join(names), "count": self.per_call, "subject": self.subject}
        first, more = (_fill(prompt, filled) for prompt in PROMPTS[self.style])
        calls = self.total // self.per_call
        return (Conversation(self.kind, (first, *[more] * (calls - 1)), self.per_call),)

    def labels(self, context: VocabularyContext) -> Labels:
        """The replies' items, normalised, each once, without ID names."""
        envisioned = eoe_parse([text for texts in self.replies(context).values() for text in texts])
        names = eoe_filter(envisioned, context.id_names, shared_words=self.drop_shared_words)
        return recorded(names, context, envisioned=len(envisioned), style=self.style, **self.provenance)


def eoe_parse(replies: Iterable[str]) -> list[str]:
    """Items of all replies, each parsed for itself, repeats included."""
    return [item for reply in replies for item in parse_items(reply)]


def released_parse(replies: Iterable[str]) -> list[str]:
    """Items as the released code reads them, for cross-checks with its lists.

    Replies are joined without a newline, which fuses the last item of one with the first of the next, and only lines
    that begin with ``"- "`` count.
    """
    return [line[2:] for line in "".join(replies).split("\n") if line.startswith("- ")]


def eoe_filter(
    candidates: Iterable[str], id_names: Sequence[str], *, shared_words: bool = False, cased: bool = False
) -> list[str]:
    """Candidates in normal form, each once, without those that equal an ID name.

    Parameters
    ----------
    candidates, id_names : sequence of str
    shared_words : bool
        Leave out candidates that share a word with an ID name, too.
    cased : bool
        Take the ID names' words as they are written, as the released code does: then "siamese fish" passes "Siamese".
    """
    names = without(candidates, id_names)
    if not shared_words:
        return names
    words = {word if cased else word.lower() for name in id_names for word in name.split()}
    return [name for name in names if words.isdisjoint(name.split())]


def _fill(prompt: str, values: dict[str, object]) -> str:
    """Placeholders replaced one by one, so that a class name with braces stays as it is."""
    for key in ("classes", "count", "subject", "names"):
        prompt = prompt.replace("{" + key + "}", str(values[key]))
    return prompt
