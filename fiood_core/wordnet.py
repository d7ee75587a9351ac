"""WordNet 3.0: its head lemmas, the synonyms of a WordNet id, and what lies above it.

Ids like ``n02123045`` are byte offsets of version 3.0; with other versions almost all name other things, so a database
is recognised by its head lemmas before it is used.
"""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from fiood_core import settings
from fiood_core.errors import DataError
from fiood_core.imagenet import WNID

DIGEST = "08970e39b4a11ebad8c264e1bfd5da5de8901f711d64474ff5283691c1180639"
"""SHA-256 of the sorted head lemmas of nouns and adjectives, one a line."""

FILES = ("data.noun", "data.adj")
ARCHIVE = "WNdb-3.0.tar.gz"
LARGEST_FILE = 64 << 20
MARKERS = ("(a)", "(p)", "(ip)")
"""Where an adjective may stand, as WordNet writes it behind the word."""


@dataclass(frozen=True)
class WordNet:
    """Noun and adjective synsets of WordNet 3.0.

    Attributes
    ----------
    nouns, adjectives : tuple of str
        Distinct head lemmas in the order of the data files, lower-case, spaces for underscores.
    words : mapping from WordNet id to tuple of str
        All words of each noun synset, as WordNet writes them but with spaces.
    source : str
        Where it was read from.
    hypernyms : mapping from WordNet id to tuple of WordNet ids
        What each noun synset is a kind, or an instance, of.
    """

    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]
    source: str
    hypernyms: Mapping[str, tuple[str, ...]]

    @property
    def head_lemmas(self) -> list[str]:
        """The 79,403 distinct head lemmas of all noun and adjective synsets, sorted."""
        return sorted({*self.nouns, *self.adjectives})

    def synonyms(self, wnid: str) -> tuple[str, ...]:
        """The words of a noun synset.

        Raises
        ------
        DataError
            There is no such synset in WordNet 3.0.
        """
        if wnid not in self.words:
            raise DataError(f"{wnid!r} is no noun synset of WordNet 3.0; wnids of other versions name other things")
        return self.words[wnid]

    def called(self, name: str) -> Sequence[str]:
        """The noun synsets that have a name as a word, else those of which it is all words in a row.

        Case and punctuation do not matter, so names of files (``Tinca_tinca``) will do.
        """
        key = _plain(name)
        one, every = self._names
        return one.get(key) or every.get(key) or ()

    @cached_property
    def _names(self) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
        """Synsets by each of their words, and by all of them in a row."""
        one: dict[str, list[str]] = defaultdict(list)
        every: dict[str, list[str]] = defaultdict(list)
        for wnid, words in self.words.items():
            for word in dict.fromkeys(map(_plain, words)):
                one[word].append(wnid)
            every[_plain(" ".join(words))].append(wnid)
        return dict(one), dict(every)

    def ancestors(self, wnid: str) -> frozenset[str]:
        """Everything that a noun synset is a kind of, at any remove.

        Raises
        ------
        DataError
            There is no such synset in WordNet 3.0.
        """
        self.synonyms(wnid)
        found: set[str] = set()
        pending = [wnid]
        while pending:
            above = [w for w in self.hypernyms[pending.pop()] if w not in found]
            found.update(above)
            pending += above
        return frozenset(found)


def head_lemma(line: str) -> str:
    """The head lemma of a line of a data file: its first word, unmarked, lower-case, with spaces."""
    return _word(line.split(" ", 5)[4]).lower()


def head_lemmas(noun_lines: Iterable[str], adjective_lines: Iterable[str]) -> list[str]:
    """Distinct head lemmas of the lines of ``data.noun`` and ``data.adj``, in order; licence lines are skipped."""
    lines = [*_synsets(noun_lines), *_synsets(adjective_lines)]
    return list(dict.fromkeys(map(head_lemma, lines)))


@cache
def load(source: str | None = None) -> WordNet:
    """WordNet 3.0 from a folder or archive, or from wherever it is installed.

    Parameters
    ----------
    source : str, optional
        A folder with ``data.noun`` and ``data.adj``, or an archive of them (``WNdb-3.0.tar.gz``, NLTK's
        ``wordnet.zip``).  By default Debian's ``wordnet-base``, an NLTK corpus, or the archive under the cache folder.

    Raises
    ------
    DataError
        It is nowhere, or is another version; the message says where to get it.
    """
    places = [Path(source).expanduser()] if source is not None else list(_places())
    for place in places:
        if place.is_dir() and all((place / name).is_file() for name in FILES):
            nouns, adjectives = ((place / name).read_bytes() for name in FILES)
        elif place.is_file():
            nouns, adjectives = _from_archive(place)
        else:
            continue
        return _checked(nouns, adjectives, str(place))
    raise DataError(
        f"WordNet 3.0 is not in {', '.join(map(str, places))}; install Debian's wordnet-base, or NLTK's corpus "
        f"(python -m nltk.downloader wordnet), or put https://wordnetcode.princeton.edu/3.0/{ARCHIVE} at "
        f"{settings.home() / 'wordnet' / ARCHIVE}"
    )


def _places() -> Iterator[Path]:
    yield Path("/usr/share/wordnet")
    folders = [Path(p) for p in os.environ.get("NLTK_DATA", "").split(os.pathsep) if p]
    for folder in (
        *folders,
        Path.home() / "nltk_data",
        Path("/usr/share/nltk_data"),
        Path("/usr/local/share/nltk_data"),
    ):
        yield folder / "corpora" / "wordnet"
        yield folder / "corpora" / "wordnet.zip"
    yield settings.home() / "wordnet" / ARCHIVE


def _from_archive(place: Path) -> tuple[bytes, bytes]:
    """The two data files of an archive; nothing is unpacked to disk."""
    found: dict[str, bytes] = {}
    try:
        if zipfile.is_zipfile(place):
            with zipfile.ZipFile(place) as bundle:
                for info in bundle.infolist():
                    if Path(info.filename).name in FILES and info.file_size <= LARGEST_FILE:
                        found[Path(info.filename).name] = bundle.read(info)
        else:
            with tarfile.open(place) as bundle:
                for member in bundle:
                    if Path(member.name).name in FILES and member.isfile() and member.size <= LARGEST_FILE:
                        file = bundle.extractfile(member)
                        assert file is not None
                        found[Path(member.name).name] = file.read()
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise DataError(f"{place} is damaged: {error}; fetch it again") from error
    if len(found) < len(FILES):
        raise DataError(
            f"{place} holds no {' and '.join(n for n in FILES if n not in found)}; it is no WordNet archive"
        )
    return found["data.noun"], found["data.adj"]


def _checked(noun_file: bytes, adjective_file: bytes, source: str) -> WordNet:
    nouns, adjectives = (list(_synsets(_lines(data, source))) for data in (noun_file, adjective_file))
    words = {f"n{line[:8]}": _words(line) for line in nouns}
    found = WordNet(
        tuple(dict.fromkeys(map(head_lemma, nouns))),
        tuple(dict.fromkeys(map(head_lemma, adjectives))),
        words,
        source,
        {f"n{line[:8]}": _hypernyms(line) for line in nouns},
    )
    digest = hashlib.sha256("".join(f"{lemma}\n" for lemma in found.head_lemmas).encode()).hexdigest()
    if digest != DIGEST or not all(map(WNID.fullmatch, words)):
        raise DataError(
            f"{source} gives {len(found.head_lemmas)} head lemmas with digest {digest[:12]}…, which is not WordNet 3.0 "
            f"(79,403 with {DIGEST[:12]}…); its ids would name other things. Give WordNet 3.0"
        )
    return found


def _lines(data: bytes, source: str) -> list[str]:
    try:
        return data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is no WordNet data file: {error}") from error


def _synsets(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line and not line.startswith("  "))


def _words(line: str) -> tuple[str, ...]:
    fields = line.split(" ")
    return tuple(_word(fields[4 + 2 * i]) for i in range(int(fields[3], 16)))


def _hypernyms(line: str) -> tuple[str, ...]:
    fields = line.split(" ")
    pointers = 5 + 2 * int(fields[3], 16)
    each = (fields[pointers + 4 * i : pointers + 4 * i + 2] for i in range(int(fields[pointers - 1])))
    return tuple(f"n{offset}" for symbol, offset in each if symbol in ("@", "@i"))


def _plain(name: str) -> str:
    """A name in lower case, with one space for whatever is between its letters and digits."""
    return re.sub(r"[^0-9a-z]+", " ", name.casefold()).strip()


def _word(written: str) -> str:
    for marker in MARKERS:
        written = written.removesuffix(marker)
    return written.replace("_", " ")
