"""How components are found: entry points, ``module:Object`` and paths.

Listing reads the metadata of installed distributions and imports nothing.  Loading is isolated: whatever a plugin does
at import, ``sys.exit`` included, becomes a :class:`PluginError` naming the distribution, its version and the reason.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType
from typing import Any

from fiood_core import settings
from fiood_core.errors import FioodError, ParameterError, PluginError, UnknownComponentError

GROUPS = {
    "detector": "fiood.detectors",
    "backbone": "fiood.backbones",
    "vocabulary": "fiood.vocabularies",
    "dataset": "fiood.datasets",
    "benchmark": "fiood.benchmarks",
}
"""Entry-point group of each kind."""

API_WINDOW = (1, 1)
"""Oldest and newest ``api_version`` that this core serves."""


@dataclass(frozen=True)
class Component:
    """A registered component, not imported.

    Attributes
    ----------
    kind, name : str
    value : str
        ``module:Object``, as the entry point has it.
    distribution, version : str
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.value.partition(":")[0].strip()

    @property
    def path(self) -> str | None:
        """File of the module, found without importing it; None where it cannot be found."""
        parts = self.module.split(".")
        try:
            spec = importlib.util.find_spec(parts[0])
        except (ImportError, ValueError):
            return None
        if spec is None or spec.origin is None:
            return None
        base = Path(spec.origin)
        if len(parts) == 1:
            return str(base)
        inner = base.parent.joinpath(*parts[1:])
        return next((str(p) for p in (inner.with_suffix(".py"), inner / "__init__.py") if p.exists()), None)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.distribution} {self.version}"


def names(kind: str) -> list[str]:
    """Registered names of a kind (``"detectors"`` or ``"detector"``), sorted; nothing is imported."""
    return sorted(_by_name(_kind(kind)))


def components(kind: str | None = None) -> list[Component]:
    """Every registered component, clashing ones included, by kind and name; nothing is imported."""
    kinds = list(GROUPS) if kind is None else [_kind(kind)]
    return [c for k in kinds for name in sorted(_by_name(k)) for c in _by_name(k)[name]]


def clashes() -> list[tuple[Component, ...]]:
    """Components whose kind and name more than one distribution claims."""
    return [tuple(group) for k in GROUPS for group in _by_name(k).values() if len(group) > 1]


def find(kind: str, name: str) -> Component:
    """The component registered under a name.

    Raises
    ------
    UnknownComponentError
        No such name; near ones are suggested.
    PluginError
        Two distributions claim it.
    """
    kind = _kind(kind)
    found = _by_name(kind).get(name)
    if not found:
        raise UnknownComponentError(_unknown(kind, name))
    if len(found) > 1:
        claims = " and ".join(f"{c.distribution} {c.version} ({c.value})" for c in found)
        raise PluginError(f"{kind} {name!r} is claimed by {claims}; uninstall one, or name it in FIOOD_DISABLE")
    return found[0]


def load(kind: str, name: str) -> Any:
    """The class (or factory) of a component.

    Parameters
    ----------
    kind : str
    name : str
        A registered name, ``module:Object``, or a path beginning with ``./`` or ``/`` (``./mine.py:MyDetector``; the
        object may be left out where the file has one class of the kind).

    Raises
    ------
    UnknownComponentError, PluginError
    """
    kind = _kind(kind)
    if name.startswith(("./", "../", "/")):
        return _checked(kind, _from_path(kind, name), name)
    if ":" in name:
        return _checked(kind, _from_module(name), name)
    component = find(kind, name)
    return _checked(kind, _resolve(component.value, str(component)), str(component))


def create(kind: str, name: str, /, **parameters: Any) -> Any:
    """An instance of a component with parameters.

    Raises
    ------
    UnknownComponentError, PluginError, ParameterError
    """
    target = load(kind, name)
    try:
        make = getattr(target, "configured", target)
        instance = make(**parameters)
    except FioodError:
        raise
    except TypeError as error:
        raise ParameterError(f"{kind} {name!r} does not take {parameters!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise PluginError(f"{kind} {name!r} failed to start: {type(error).__name__}: {error}") from error
    if not hasattr(instance, "name"):
        instance.name = name
    return instance


def refresh() -> None:
    """Forget what was found; for programs that install plugins while they run."""
    _scan.cache_clear()


def _kind(kind: str) -> str:
    singular = {"vocabularies": "vocabulary"}.get(kind, kind.removesuffix("s"))
    if singular not in GROUPS:
        raise UnknownComponentError(f"no kind {kind!r}; kinds are {', '.join(GROUPS)}")
    return singular


@lru_cache(maxsize=1)
def _scan() -> Mapping[str, Mapping[str, list[Component]]]:
    kind_of = {group: kind for kind, group in GROUPS.items()}
    off = settings.disabled_plugins()
    seen: set[str] = set()
    found: dict[str, dict[str, list[Component]]] = {kind: defaultdict(list) for kind in GROUPS}
    for distribution in distributions():
        name = _normalised(distribution)
        if name is None or name in seen:  # the first on sys.path is the one that imports: editable and wheel count once
            continue
        seen.add(name)
        for entry in distribution.entry_points:
            kind = kind_of.get(entry.group)
            if kind is None or off & {name, entry.name, f"{kind}:{entry.name}", f"{kind}s:{entry.name}"}:
                continue
            component = Component(kind, entry.name, entry.value, name, distribution.version)
            found[kind][entry.name].append(component)
    return found


def _by_name(kind: str) -> Mapping[str, list[Component]]:
    return _scan()[kind]


def _normalised(distribution: Distribution) -> str | None:
    name = distribution.metadata["Name"]
    return re.sub(r"[-_.]+", "-", name).lower() if name else None


def _unknown(kind: str, name: str) -> str:
    known = names(kind)
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    elsewhere = [other for other in GROUPS if other != kind and name in _by_name(other)]
    if elsewhere:
        hint += f" (there is a {elsewhere[0]} of that name)"
    listing = "" if near else f"; registered are {', '.join(known) or 'none'}"
    return f"no {kind} is registered as {name!r}{hint}{listing}"


def _resolve(value: str, what: str) -> Any:
    module_name, _, attribute = value.partition(":")
    try:
        target: Any = import_module(module_name.strip())
        for part in filter(None, attribute.strip().split(".")):
            target = getattr(target, part)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{what} failed to load from {value!r}: {type(error).__name__}: {error}") from error
    return target


def _from_module(name: str) -> Any:
    module = name.partition(":")[0]
    if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", module):
        raise PluginError(f"{name!r} is neither a registered name nor module:Object nor a path beginning with ./")
    return _resolve(name, repr(name))


def _from_path(kind: str, name: str) -> Any:
    location, _, attribute = name.partition(":")
    path = Path(location).resolve()
    if not path.is_file():
        raise PluginError(f"{name!r}: there is no file {path}")
    module = _import_file(path)
    if attribute:
        if not hasattr(module, attribute):
            raise PluginError(f"{path} defines no {attribute!r}")
        return getattr(module, attribute)
    base = _base(kind)
    own = [
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, base) and v.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise PluginError(f"{path} defines {len(own)} {kind} classes; name one as {location}:ClassName")
    return own[0]


def _import_file(path: Path) -> ModuleType:
    module_name = f"fiood_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise PluginError(f"{path} failed to load: {type(error).__name__}: {error}") from error
    return module


def _base(kind: str) -> type:
    base: type = getattr(import_module(f"fiood_core.{kind}"), kind.capitalize())
    return base


def _checked(kind: str, target: Any, what: str) -> Any:
    if isinstance(target, type) and not issubclass(target, _base(kind)):
        raise PluginError(f"{what} is a {target.__name__}, which is no fiood_core {kind.capitalize()}")
    if not callable(target):
        raise PluginError(f"{what} is a {type(target).__name__}, not a class or factory")
    version = getattr(target, "api_version", API_WINDOW[1])
    if not API_WINDOW[0] <= version <= API_WINDOW[1]:
        advice = "update fiood-core" if version > API_WINDOW[1] else "update the plugin"
        raise PluginError(
            f"{what} is written for API {version}; this core serves {API_WINDOW[0]} to {API_WINDOW[1]}: {advice}"
        )
    return target
