"""What lies in a feature store: listing it, checking every digest, and taking things out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fiood_core import sealed
from fiood_core.errors import StoreError
from fiood_core.store import REMOVED, FeatureStore, open_segment, remove_segment

DAMAGED = "(damaged)"

SHORTEST_KEY = 4
"""Characters of the shortest beginning of a key that names it."""


@dataclass(frozen=True)
class Entry:
    """One segment of a store.

    Attributes
    ----------
    place : str
        Its folder, relative to the store.
    backbone : str
        What the backbone is called.
    source : str
        Where its pictures come from.
    images, skipped : int
        Pictures, and how many of them were left out.
    columns : tuple of str
        Complete columns.
    unfinished : mapping from column to (int, int)
        Finished shards, of how many, of the other columns.
    bytes : int
    """

    place: str
    backbone: str
    source: str
    images: int
    skipped: int
    columns: tuple[str, ...]
    unfinished: Mapping[str, tuple[int, int]]
    bytes: int

    @property
    def backbone_key(self) -> str:
        """Name of the backbone's folder: its key."""
        return self.place.split("/")[0]

    @property
    def key(self) -> str:
        """Name of the segment's folder."""
        return self.place.split("/")[-1]

    @property
    def complete(self) -> bool:
        """Whether it has columns, and all of them whole."""
        return bool(self.columns) and not self.unfinished


@dataclass(frozen=True)
class Damage:
    """A file that cannot be trusted, relative to the store, and why."""

    place: str
    reason: str


def entries(store: FeatureStore) -> list[Entry]:
    """Every segment, by backbone and source; what is damaged is listed as far as it can be read."""
    found = [_entry(store.root, path.relative_to(store.root).as_posix()) for path in _segment_folders(store.root)]
    return sorted(found, key=lambda entry: (entry.backbone, entry.source, entry.place))


def damage(store: FeatureStore) -> Iterator[Damage]:
    """Every file that is damaged, missing or where it does not belong; each byte of the store is read."""
    sealed.forget()
    known: set[str] = set()
    files = [path for path in sorted(store.root.rglob("*")) if path.is_file()]
    places = [path.relative_to(store.root).as_posix() for path in files]
    for place in sorted((p for p in places if not _hidden(p)), key=lambda p: p.endswith(".json")):  # manifests last
        for found in _file_damage(store.root, place):
            if found.place not in known:
                known.add(found.place)
                yield found


def remove_damaged(store: FeatureStore, found: list[Damage]) -> None:
    """Take damaged files out, so that the next run makes just them again."""
    for damaged in found:
        path = store.root / damaged.place
        if path.name == "rows.safetensors":
            shutil.rmtree(path.parent)
        path.unlink(missing_ok=True)
        if len(path.relative_to(store.root).parts) == 5:  # a shard: its column is complete no more
            path.parent.with_suffix(".json").unlink(missing_ok=True)


def matching(store: FeatureStore, key: str) -> list[Entry]:
    """The segments that the beginning of a segment's or a backbone's key names.

    Raises
    ------
    StoreError
        It names none, or different ones, or is too short.
    """
    if len(key) < SHORTEST_KEY:
        raise StoreError(f"{key!r} is too short to name anything; give at least {SHORTEST_KEY} characters of a key")
    all_entries = entries(store)
    segments = [entry for entry in all_entries if entry.key.startswith(key)]
    backbones = [entry for entry in all_entries if entry.backbone_key.startswith(key)]
    names = {entry.place for entry in segments} | {entry.backbone_key for entry in backbones}
    if not names:
        raise StoreError(
            f"no segment or backbone in {store.root} has a key beginning with {key!r}; see `fiood store list`"
        )
    if len(names) > 1:
        raise StoreError(f"{key!r} is the beginning of {len(names)} keys: {', '.join(sorted(names))}; give more of it")
    return segments or backbones


def remove(store: FeatureStore, removed: list[Entry]) -> None:
    """Delete segments, and what is kept of a backbone that none is left of: its head and statistics.

    Raises
    ------
    StoreError
        Another process is writing one of them.
    """
    for entry in removed:
        remove_segment(store.root, entry.place)
    for grave in store.root.glob(f"*/*/{REMOVED}*"):  # of a removal that was killed
        shutil.rmtree(grave, ignore_errors=True)
    for backbone in {entry.backbone_key for entry in removed}:
        if not any((store.root / backbone).glob("*/*/rows.safetensors")):
            shutil.rmtree(store.root / backbone)


def _segment_folders(root: Path) -> Iterator[Path]:
    for rows in sorted(root.glob("[!.]*/[!.]*/[!.]*/rows.safetensors")):
        yield rows.parent


def _entry(root: Path, place: str) -> Entry:
    folder = root / place
    backbone, shelf, _ = place.split("/")
    files = [path for path in folder.rglob("*") if path.is_file()]
    columns, skipped = _columns(root, folder)
    try:
        images, shards = len(segment := open_segment(root, place)), segment.shards
    except StoreError:
        images, shards = 0, 0
    unfinished = {}
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        present = sorted(inner.glob("[!.]*.safetensors"))
        if not inner.with_suffix(".json").exists():
            unfinished[_column_of(root, present[0]) if present else inner.name] = (len(present), shards)
    if not columns and not unfinished:
        unfinished = {"features": (0, shards)}
    return Entry(
        place=place,
        backbone=_text(root, f"{backbone}/backbone.json", "title"),
        source=_text(root, f"{backbone}/{shelf}/shelf.json", "source"),
        images=images,
        skipped=skipped,
        columns=tuple(columns),
        unfinished=unfinished,
        bytes=sum(path.stat().st_size for path in files),
    )


def _columns(root: Path, folder: Path) -> tuple[list[str], int]:
    """Keys of the complete columns, and how many pictures they leave out."""
    keys: list[str] = []
    skipped: set[int] = set()
    for manifest in sorted(folder.glob("[!.]*.json")):
        try:
            data = sealed.read_json(root, manifest.relative_to(root).as_posix())
            keys.append(str(data["column"]))
            skipped.update(entry[0] for entry in data["skipped"])
        except StoreError:
            keys.append(f"{manifest.stem} {DAMAGED}")
    return keys, len(skipped)


def _column_of(root: Path, shard: Path) -> str:
    try:
        return sealed.read(root, shard.relative_to(root).as_posix()).metadata["column"]
    except StoreError:
        return f"{shard.parent.name} {DAMAGED}"


def _text(root: Path, place: str, key: str) -> str:
    try:
        return str(sealed.read_json(root, place)[key])
    except StoreError:
        return DAMAGED


def _hidden(place: str) -> bool:
    """Whether it is a temporary file, or in a segment that is being deleted."""
    return any(part.startswith(".") for part in place.split("/"))


def _file_damage(root: Path, place: str) -> Iterator[Damage]:
    """What is wrong with a file, and for a column's manifest with the shards that it names."""
    try:
        if place.endswith(".safetensors"):
            sealed.read(root, place)
        elif place.endswith(".json"):
            shards = sealed.read_json(root, place).get("shards", {})
            for shard, entry in shards.items():
                yield from _shard_damage(
                    root, f"{place.removesuffix('.json')}/{int(shard):05d}.safetensors", entry["sha256"]
                )
        else:
            yield Damage(place, f"{root / place} is no file of the store; move it elsewhere")
    except StoreError as error:
        yield Damage(place, str(error))


def _shard_damage(root: Path, place: str, digest: str) -> Iterator[Damage]:
    try:
        sealed.read(root, place, digest)
    except StoreError as error:
        yield Damage(place, str(error))
