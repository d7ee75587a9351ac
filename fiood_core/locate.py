"""Where the listed pictures of a dataset lie: by relative path under any top folder, then by content.

Copies in circulation differ in their top folders and write underscores for spaces; neither matters here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fiood_core.download import file_digest

PROBES = 3
"""Pictures by which the top folder of a copy is found."""


@dataclass(frozen=True)
class Wanted:
    """A picture that is looked for.

    Attributes
    ----------
    id : str
    names : tuple of str
        Relative paths, with forward slashes, under which copies keep it.
    digest : str, optional
        ``"<algorithm>:<hex>"`` of its content, where that is known.
    size : int, optional
        Bytes; spares reading files of other sizes when it is looked for by content.
    """

    id: str
    names: tuple[str, ...]
    digest: str | None = None
    size: int | None = None


@dataclass
class Located:
    """What was found.

    Attributes
    ----------
    places : mapping from id to path
        Relative to the root, with forward slashes.
    misplaced : set of str
        Ids that were found by content alone.
    ambiguous : mapping from id to paths
        Ids that several files fit; they have no place.
    """

    places: dict[str, str] = field(default_factory=dict)
    misplaced: set[str] = field(default_factory=set)
    ambiguous: dict[str, list[str]] = field(default_factory=dict)


def locate(root: Path, wanted: Sequence[Wanted]) -> Located:
    """Find pictures under a folder.

    A copy in which all lie where their names say costs one listing of each of their folders, however many other files
    there are; only for the rest is the whole folder walked.
    """
    found = Located()
    if not root.is_dir():
        return found
    listing = _Listing(root)
    lost = _in_place(listing, wanted, found)
    lost = _by_path(root, lost, found)
    _by_content(root, [w for w in lost if w.digest], found)
    return found


def walk(root: Path) -> Iterator[str]:
    """Relative paths of all files under a folder, hidden ones aside; links are followed, each folder once."""
    seen: set[tuple[int, int]] = set()
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in scan(root / folder):
            path = f"{folder}{entry.name}"
            if not entry.is_dir():
                yield path
                continue
            status = entry.stat()
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                pending.append(f"{path}/")


def plain(path: str) -> str:
    """A path as copies in circulation spell it: spaces as underscores."""
    return path.replace(" ", "_")


class _Listing:
    """Files and folders below a root by their plain spelling, each folder read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {}
        self._folders: dict[str, str | None] = {"": ""}

    def find(self, path: str) -> str | None:
        """The path of a file as it is spelled on disk; None where there is none."""
        parent, _, name = plain(path).rpartition("/")
        folder = self._folder(parent)
        spelled = None if folder is None else self._names(folder)[0].get(name)
        return None if spelled is None else f"{folder}{spelled}"

    def folders(self) -> list[str]:
        """The root's folders."""
        return sorted(self._names("")[1].values())

    def _folder(self, path: str) -> str | None:
        """A folder as it is spelled on disk, with a slash behind it; ``""`` for the root."""
        if path not in self._folders:
            parent, _, name = path.rpartition("/")
            above = self._folder(parent)
            spelled = None if above is None else self._names(above)[1].get(name)
            self._folders[path] = None if spelled is None else f"{above}{spelled}/"
        return self._folders[path]

    def _names(self, folder: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
        if folder not in self._read:
            files: dict[str, str] = {}
            folders: dict[str, str] = {}
            for entry in scan(self.root / folder):
                (folders if entry.is_dir() else files).setdefault(plain(entry.name), entry.name)
            self._read[folder] = files, folders
        return self._read[folder]


def scan(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder by name, hidden entries aside; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:
        return []


def _in_place(listing: _Listing, wanted: Sequence[Wanted], found: Located) -> list[Wanted]:
    """Find what lies where its name says below the copy's top folder; the others are given back."""
    top = _top(listing, wanted)
    if top is None:
        return list(wanted)
    lost = []
    for each in wanted:
        place = next((p for name in each.names if (p := listing.find(f"{top}{name}")) is not None), None)
        if place is None:
            lost.append(each)
        else:
            found.places[each.id] = place
    return lost


def _top(listing: _Listing, wanted: Sequence[Wanted]) -> str | None:
    """The folder below which the names begin: the root, else the one of its folders that fits, if only one does."""
    last = len(wanted) - 1
    probes = [wanted[row] for row in sorted({round(i * last / PROBES) for i in range(PROBES + 1)})] if wanted else []
    names = {spelled for probe in probes for name in probe.names for spelled in (name, plain(name))}
    if any((listing.root / name).is_file() for name in names):
        return ""
    fitting = [top for top in listing.folders() if any((listing.root / top / name).is_file() for name in names)]
    return f"{fitting[0]}/" if len(fitting) == 1 else None


def _by_path(root: Path, wanted: Sequence[Wanted], found: Located) -> list[Wanted]:
    """Find files whose path ends in a picture's name; what has none, or several, is given back or noted."""
    if not wanted:
        return []
    by_name: dict[str, list[str]] = defaultdict(list)
    names = {plain(name).rpartition("/")[2] for each in wanted for name in each.names}
    for path in walk(root):
        name = plain(path.rpartition("/")[2])
        if name in names:
            by_name[name].append(path)
    lost = []
    for each in wanted:
        places = list(dict.fromkeys(place for name in each.names for place in _ending_in(name, by_name)))
        if len(places) == 1:
            found.places[each.id] = places[0]
        elif places:
            found.ambiguous[each.id] = places
        else:
            lost.append(each)
    return lost


def _ending_in(name: str, by_name: Mapping[str, Sequence[str]]) -> list[str]:
    tail = plain(name)
    candidates = by_name.get(tail.rpartition("/")[2], ())
    return [c for c in candidates if plain(c) == tail or plain(c).endswith(f"/{tail}")]


def _by_content(root: Path, wanted: Sequence[Wanted], found: Located) -> None:
    """Find renamed files among those that no other picture claims."""
    if not wanted:
        return
    taken = {*found.places.values(), *(place for places in found.ambiguous.values() for place in places)}
    sizes = {each.size for each in wanted}
    free = [path for path in walk(root) if path not in taken and (root / path).is_file()]
    if None not in sizes:
        free = [path for path in free if (root / path).stat().st_size in sizes]
    for algorithm in sorted({str(each.digest).partition(":")[0] for each in wanted}):
        content = {file_digest(root / path, algorithm): path for path in reversed(free)}
        for each in wanted:
            if each.digest in content:
                found.places[each.id] = content[each.digest]
                found.misplaced.add(each.id)
