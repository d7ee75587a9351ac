"""Which datasets there are, and the state that each is in on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fiood_core import registry
from fiood_core.dataset import Dataset, Info
from fiood_core.errors import FioodError, PluginError

READY = "ready"


@dataclass(frozen=True)
class Listed:
    """A registered dataset.

    Attributes
    ----------
    name, distribution, version : str
    info : Info or None
        None for a plugin that does not load.
    state : str
        ``"ready"``, or in a word or two why it is not.
    missing : tuple of str
        Everything that keeps it from being read, each with the next step.
    """

    name: str
    distribution: str
    version: str
    info: Info | None
    state: str
    missing: tuple[str, ...] = ()

    def data(self) -> dict[str, Any]:
        """What is known of it as plain data."""
        info = self.info or Info(title=self.name)
        known = ("title", "summary", "citation", "licence", "home", "expected_count", "notes")
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            **{key: getattr(info, key) for key in known},
            "digests": dict(info.digests),
            "state": self.state,
            "missing": list(self.missing),
        }


def catalogue() -> Iterator[Listed]:
    """Every registered dataset by name, with its state on this machine; a broken plugin is listed as such."""
    for component in registry.components("dataset"):
        if component.disabled:
            continue
        found = component.name, component.distribution, component.version
        try:
            target = registry.load("dataset", component.name)
        except PluginError as error:
            yield Listed(*found, None, "broken", (str(error),))
            continue
        if any(p.default is p.empty for p in (registry.parameters(target) or {}).values()):
            yield Listed(*found, getattr(target, "info", None), "takes parameters")
            continue
        try:
            dataset: Dataset = registry.create("dataset", component.name)
            yield Listed(*found, dataset.info, state(dataset), tuple(dataset.missing()))
        except FioodError as error:
            yield Listed(*found, getattr(target, "info", None), "broken", (str(error),))


def state(dataset: Dataset) -> str:
    """In a word or two, whether a dataset can be read, and how far it is from that."""
    from fiood_core.shelved import ShelvedDataset

    if not dataset.missing():
        return READY
    if not isinstance(dataset, ShelvedDataset):
        return "not ready"
    if dataset.root.exists():
        return "incomplete"
    has_lists = bool(dataset.list_files) and all((dataset.lists / r.name).is_file() for r in dataset.list_files)
    return "lists only" if has_lists else "not here"
