"""A component that a run asks for: its kind, name and parameters, as plain data until it is created."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from fiood_core import registry, spec
from fiood_core.errors import SuiteError

PATH_PREFIXES = ("./", "../", "/")


@dataclass(frozen=True)
class Request:
    """A component as it was asked for; nothing is imported until :meth:`create`.

    Attributes
    ----------
    kind : str
        ``"detector"``, ``"backbone"``, ``"vocabulary"``, ``"dataset"`` or ``"benchmark"``.
    name : str
        A registered name, ``module:Object``, or a path beginning with ``./``.
    parameters : mapping
        Plain data (what JSON can hold).
    """

    kind: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The name, with its parameters in parentheses if there are any: ``knn(k=50)``; of a path its last part."""
        name = f"./{self.name.rpartition('/')[2]}" if self.name.startswith(PATH_PREFIXES) else self.name
        return str(spec.Spec(name, dict(self.parameters)))

    @classmethod
    def parse(cls, kind: str, value: str | Mapping[str, Any]) -> Request:
        """The request that a string or a mapping stands for: ``knn(k=50)``, ``folder:PATH``, ``{name: knn, k: 50}``.

        Raises
        ------
        ParameterError, SuiteError
            It is neither, or a parameter is no plain value.
        """
        name, parameters = spec.parse(value)
        folder, colon, path = name.partition(":")
        if kind == "dataset" and colon and folder in registry.names("dataset"):
            name, parameters = folder, {"path": path, **parameters}
        try:
            return cls(kind, name, plain(parameters))
        except ValueError as error:
            raise SuiteError(f"{kind} {name!r}: {error}") from error

    def data(self) -> dict[str, Any]:
        """The request as a mapping that a suite or a task can hold."""
        return {"name": self.name, **self.parameters}

    @classmethod
    def from_data(cls, kind: str, data: Mapping[str, Any]) -> Request:
        """The request that :meth:`data` was taken from."""
        return cls(kind, data["name"], {key: value for key, value in data.items() if key != "name"})

    def create(self) -> Any:
        """An instance.

        Raises
        ------
        UnknownComponentError, PluginError, ParameterError
        """
        return registry.create(self.kind, self.name, **self.parameters)

    @property
    def registered(self) -> bool:
        """Whether the name is looked up in the registry, rather than a path or ``module:Object``."""
        return not self.name.startswith(PATH_PREFIXES) and ":" not in self.name


def digest(data: Any) -> str:
    """SHA-256 of plain data, in one canonical JSON form."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def source_digest(instance: object) -> str:
    """SHA-256 of the file that defines an object's class; empty text where there is none."""
    module = sys.modules.get(type(instance).__module__)
    path = getattr(module, "__file__", None)
    return _file_digest(path) if path else ""


@lru_cache(maxsize=1)
def core_digest() -> str:
    """SHA-256 of the core's own modules: a kept score outlives no change to the code that made it."""
    return digest([(path.name, _file_digest(str(path))) for path in sorted(Path(__file__).parent.glob("*.py"))])


@lru_cache(maxsize=1024)
def _file_digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def plain(value: Any) -> Any:
    """``value`` with tuples as lists.

    Raises
    ------
    ValueError
        It holds something that JSON cannot.
    """
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"keys of {value!r} must be strings")
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return value
    raise ValueError(f"{value!r} is no plain value (text, number, true, false, null, list)")
