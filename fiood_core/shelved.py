"""Datasets whose files come from elsewhere: fetched, extracted and checked, or adopted from a copy that the user has.

A dataset's shelf is a folder of the data home.  It holds ``lists``, ``downloads`` (archives as they came; they may be
deleted once the pictures are accepted) and the pictures, a folder or a symbolic link to the user's copy.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from fiood_core import settings
from fiood_core.archive import exclusive, unpack
from fiood_core.dataset import Dataset
from fiood_core.download import Progress, Remote, fetch, file_digest, mismatch
from fiood_core.errors import DataError

if TYPE_CHECKING:
    from typing_extensions import Self

SHOWN = 10
"""How many names of one kind a message lists."""

HARMLESS = ("extra:", "misplaced:")
"""Beginnings of findings with which a dataset can still be read."""


class ShelvedDataset(Dataset):
    """A dataset with an archive and list files.

    Parameters
    ----------
    root : path, optional
        A copy that the user has; by default the pictures on the dataset's shelf.
    lists : path, optional
        Folder that holds the list files; by default ``lists`` on the shelf.

    Attributes
    ----------
    name : str
    source : str
        What the feature store knows the pictures by; equal for datasets that are views of one archive.
    shelf : str
        Folder of the data home; equal for datasets that share an archive, and the name where empty.
    place : str
        The pictures' folder on the shelf.
    list_files : tuple of Remote
    archive : Remote
    given_lists : dict from name to path
        List files that the user keeps elsewhere.
    canonical : bool
        False for a stand-in.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    shelf: ClassVar[str] = ""
    place: ClassVar[str] = "pictures"
    list_files: Sequence[Remote] = ()
    archive: Remote

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "info" in vars(cls):
            remotes = (*cls.list_files, cls.archive)
            known = {remote.name: remote.digest.removeprefix("sha256:") for remote in remotes if remote.digest}
            cls.info = replace(cls.info, digests={**known, **cls.info.digests})

    def __init__(self, root: str | Path | None = None, lists: str | Path | None = None) -> None:
        self._home = settings.home() / "datasets" / (self.shelf or self.name)
        self._root = None if root is None else Path(root).expanduser()
        self.lists = self._home / "lists" if lists is None else Path(lists).expanduser()
        self.given_lists: dict[str, Path] = {}
        self.canonical = True

    # -- what a kind of dataset says -----------------------------------------------------------------------------

    @abstractmethod
    def verify(self, progress: Progress | None = None) -> Sequence[str]:
        """Every missing, empty, extra, altered or misplaced file, each finding with its kind before a colon."""

    def forget(self) -> None:
        """Drop what is remembered of the files: all cached properties."""
        for cls in type(self).__mro__:
            for name, value in vars(cls).items():
                if isinstance(value, cached_property):
                    self.__dict__.pop(name, None)

    def accept(self, progress: Progress | None = None) -> None:
        """Remember what the files are, now that they were found good."""

    # -- what it gives -------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """Where the pictures lie, or will."""
        if self._root is not None:
            return self._root
        own = self._own_place
        return own if own.is_symlink() else self._home / self.place

    def prepare(
        self, *, offline: bool = False, adopt: str | Path | None = None, progress: Progress | None = None
    ) -> None:
        """Fetch lists and archive, check, extract and put in place; or adopt a copy.

        What is there and holds is kept; pictures on the shelf that are incomplete are extracted anew.

        Parameters
        ----------
        offline : bool
            Make no network call.
        adopt : path, optional
            A folder, which is linked to, or the archive, which is extracted.
        progress : callable, optional

        Raises
        ------
        DataError
            Something could not be had or is not what it should be; the message says all that is.
        """
        offline = offline or settings.offline()
        with exclusive(self._home):
            self.forget()
            problems = self._fetch_lists(offline, progress)
            archive: Path | None = None
            if adopt is not None:
                archive = self._adopt(Path(adopt).expanduser().absolute()) if not problems else None
            elif not self.root.exists() or (not problems and not self._stands()):
                try:
                    archive = self._fetch_archive(offline, progress)
                except DataError as error:
                    problems.append(str(error))
            if problems:
                raise DataError("\n".join(problems))
            if archive is not None:
                self._extract(archive, progress)
            self.forget()
            self._require_complete(progress)
            self.accept(progress)

    def list_paths(self) -> Mapping[str, Path]:
        """The list files by name, their digests checked.

        Raises
        ------
        DataError
            Some are missing or altered; the message names them all.
        """
        problems = []
        for remote in self.list_files:
            path = self.list_path(remote)
            if not path.is_file():
                how = f"{self.command}, or get it from {remote.urls[0]}" if remote.urls else remote.instructions
                problems.append(f"{self.name}: its list {remote.name} is not at {path}; {how}")
            elif remote.digest and file_digest(path, remote.digest.partition(":")[0]) != remote.digest:
                problems.append(
                    f"{self.name}: {path} is altered: it does not have the digest {remote.digest}; "
                    f"remove it and {self.command}"
                )
        if problems:
            raise DataError("\n".join(problems))
        return {remote.name: self.list_path(remote) for remote in self.list_files}

    def list_path(self, remote: Remote) -> Path:
        """Where a list file is kept."""
        return self.given_lists.get(remote.name, self.lists / remote.name)

    @property
    def command(self) -> str:
        """What to run to get the dataset."""
        return f"run fiood data prepare {self.name}" if self.canonical else "call prepare()"

    @property
    def how_to_get(self) -> str:
        """What to do for the pictures, as the end of a message."""
        if self.archive.urls:
            return f"{self.command}, with --adopt FOLDER for a copy that you have"
        return f"{self.archive.instructions} Then {self.command} --adopt PLACE, the folder or the archive"

    def stand_in(self, manifest: Mapping[str, object]) -> Self:
        """A copy of this dataset that is not canonical and keeps files and features apart from the canonical ones.

        Parameters
        ----------
        manifest : mapping
            ``archive``, a mapping with the fields of a :class:`~fiood_core.download.Remote`, replaces the archive; the
            rest is the kind of dataset's.

        Raises
        ------
        DataError
            The archive has unknown fields, or no plain file name.
        """
        identity = hashlib.sha256(json.dumps(manifest, sort_keys=True, default=str).encode()).hexdigest()[:12]
        archive = manifest.get("archive")
        other = copy.copy(self)
        other.forget()
        other.canonical = False
        other.name = f"stand-in for {self.name}"  # type: ignore[misc]
        other.source = f"{self.source} (stand-in)"  # type: ignore[misc]
        other._home = self._home / "stand-ins" / identity
        if archive is not None:
            other.archive = _remote(archive)
        return other

    # -- preparing -----------------------------------------------------------------------------------------------

    @property
    def _own_place(self) -> Path:
        """Where this dataset links to a copy of its own while others of the shelf use another."""
        return self._home / f"{self.place}-{self.name}"

    def _stands(self) -> bool:
        """Whether the pictures that are there need no archive: they are complete, or not ours to mend."""
        ours = self._root is None and not self.root.is_symlink()
        return not ours or not self.missing()

    def _fetch_lists(self, offline: bool, progress: Progress | None) -> list[str]:
        problems = []
        for remote in self.list_files if self.canonical else ():
            given = self.given_lists.get(remote.name)
            try:
                if given is None:
                    fetch(remote, self.lists, offline=offline, progress=progress)
                elif not given.is_file():
                    raise DataError(f"there is no list {given}. {remote.instructions}")
            except DataError as error:
                problems.append(f"{self.name}: {error}")
        return problems

    def _fetch_archive(self, offline: bool, progress: Progress | None) -> Path:
        downloads = self._home / "downloads"
        if not self.archive.urls and not (downloads / self.archive.name).exists():
            raise DataError(f"{self.name}: its pictures are not at {self.root}. {self.how_to_get}")
        return fetch(self.archive, downloads, offline=offline, progress=progress)

    def _extract(self, archive: Path, progress: Progress | None) -> None:
        """Put an archive's content in the place of what is there, if anything is."""
        target = self.root
        if target.is_symlink():
            raise DataError(f"{self.name}: {target} is a link to a copy; remove it to extract {archive.name}")
        if self._root is None:  # nobody else is at work on the shelf, so these were left by a process that was killed
            for leftover in target.parent.glob(f".{target.name}.*"):
                shutil.rmtree(leftover, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=self._parent(target)))
        try:
            unpack(archive, scratch / "new", nested=self.archive.nested, progress=progress)
            if target.exists():
                os.replace(target, scratch / "old")
            os.replace(scratch / "new", target)
        except DataError as error:
            raise DataError(f"{self.name}: {error}; {self._set_aside(archive)}") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _set_aside(self, archive: Path) -> str:
        """Take a refused download out of the way; the user's own files stay where they are."""
        if archive.parent != self._home / "downloads" or not self.archive.urls:
            return f"{archive} is not the archive that is asked for: get it again"
        refused = archive.with_name(f"{archive.name}.refused")
        os.replace(archive, refused)
        return f"it was set aside as {refused}; run again to fetch it anew"

    def _adopt(self, copy_of_user: Path) -> Path | None:
        """Link to a complete copy; or give back the archive that is to be extracted."""
        if copy_of_user.is_file():
            problem = mismatch(self.archive, copy_of_user)
            if problem:
                raise DataError(f"{self.name}: {copy_of_user}: {problem}")
            if self.root.exists():
                raise DataError(f"{self.name}: {self.root} exists already; remove it to extract {copy_of_user.name}")
            return copy_of_user
        if not copy_of_user.is_dir():
            raise DataError(f"{self.name}: there is no folder or archive {copy_of_user} to adopt")
        trial = copy.copy(self)
        trial._root = copy_of_user
        trial.forget()
        trial._require_complete(None)
        link = self._link_for(copy_of_user.resolve())
        scratch = self._parent(link) / f".{link.name}.new"
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(copy_of_user.resolve(), target_is_directory=True)
        os.replace(scratch, link)
        return None

    def _link_for(self, target: Path) -> Path:
        """Where the link to a copy goes: the shelf's place, unless pictures that others may use stand there."""
        if self._root is not None:
            if self._root.exists() and not self._root.is_symlink():
                raise DataError(f"{self.name}: {self._root} exists already; remove it to adopt {target}")
            return self._root
        common = self._home / self.place
        free = not common.exists() or (common.is_symlink() and common.resolve() == target)
        if free and self._own_place.is_symlink():
            self._own_place.unlink()
        return common if free else self._own_place

    def _require_complete(self, progress: Progress | None) -> None:
        bad = [problem for problem in self.verify(progress) if not problem.startswith(HARMLESS)]
        if bad:
            ours = self._root is None and not self.root.is_symlink()
            advice = f"remove {self.root} and run again" if ours else "complete the copy, or adopt another"
            raise DataError(f"{self.name} at {self.root} is not complete; {advice}:\n  {_lines(bad)}")

    @staticmethod
    def _parent(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.parent


def some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _remote(given: Any) -> Remote:
    known = {field.name for field in fields(Remote)}
    name = str(given.get("name", "")) if isinstance(given, Mapping) else ""
    if not name or PurePosixPath(name).name != name or not set(given) <= known:
        raise DataError(f"a manifest's archive has a plain file name and other fields of a Remote, got {given!r}")
    return Remote(**{**given, "urls": tuple(given.get("urls", ()))})


def _lines(problems: Sequence[str]) -> str:
    shown = 5 * SHOWN
    more = [f"… and {len(problems) - shown} more; fiood data verify lists them all"] if len(problems) > shown else []
    return "\n  ".join([*problems[:shown], *more])
