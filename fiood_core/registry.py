"""How components are found: entry points, ``module:Object`` and paths.

Listing reads the metadata of installed distributions and imports nothing.  Loading is isolated: whatever a plugin does
at import, ``sys.exit`` included, becomes a :class:`PluginError` naming the distribution, its version and the reason.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

HOOK = "hook"
HOOK_GROUP = "fiood.hooks"
"""Entry-point group of :mod:`fiood_core.hookspecs`; its entries are modules or objects, not components."""

API_WINDOW = (1, 1)
"""Oldest and newest ``api_version`` that this core serves."""


@dataclass(frozen=True)
class Component:
    """A registered component (or hook), not imported.

    Attributes
    ----------
    kind, name : str
    value : str
        ``module:Object``, as the entry point has it.
    distribution, version : str
        For a component that is not registered: its module or file, and a digest of that.
    disabled : bool
        Whether ``FIOOD_DISABLE`` switches it off.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str
    disabled: bool = False

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.value.partition(":")[0].strip()

    @property
    def path(self) -> str | None:
        """File of the module, found without importing it; None where it cannot be found."""
        return _module_file(self.module)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.distribution} {self.version}"


def names(kind: str) -> list[str]:
    """Registered names of a kind (``"detectors"`` or ``"detector"``), sorted; nothing is imported."""
    return sorted(_by_name(_kind(kind)))


def components(kind: str | None = None) -> list[Component]:
    """Every registered component, clashing and disabled ones included, by kind and name; nothing is imported."""
    kinds = list(GROUPS) if kind is None else [_kind(kind)]
    return [c for k in kinds for c in sorted(_installed().found, key=_order) if c.kind == k]


def hooks() -> list[Component]:
    """Every registered hook that is not disabled; nothing is imported."""
    return [c for c in sorted(_installed().found, key=_order) if c.kind == HOOK and not c.disabled]


def clashes() -> list[tuple[Component, ...]]:
    """Components whose kind and name more than one distribution claims."""
    return [tuple(group) for kind in GROUPS for group in _grouped(kind).values() if len(group) > 1]


def unreadable() -> Sequence[str]:
    """Distributions that have fiood entry points in metadata that cannot be read, one sentence each."""
    return _installed().unreadable


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
        raise PluginError(_claimed(found))
    return found[0]


def origin(kind: str, name: str) -> Component:
    """Where a component comes from: as :func:`find`, and for ``module:Object`` and paths its file's digest.

    Raises
    ------
    UnknownComponentError, PluginError
    """
    if not _is_path(name) and ":" not in name:
        return find(kind, name)
    location = name.partition(":")[0]
    file = location if _is_path(name) else _module_file(location)
    if file is None or not Path(file).is_file():
        raise PluginError(f"{name!r}: there is no file or module {location!r}")
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    source = Path(file).name if _is_path(name) else location
    return Component(_kind(kind), name, name, source, f"sha256:{digest[:12]}")


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
    if settings.strict():
        require_sound()
    if _is_path(name):
        return _checked(kind, _from_path(kind, name), name)
    if ":" in name:
        return _checked(kind, _from_module(name), name)
    return load_component(find(kind, name))


def load_component(component: Component) -> Any:
    """The class (or factory) of a registered component, clashing ones included.

    Raises
    ------
    PluginError
        It fails to load, or is not what its kind asks for.
    """
    target = resolve(component)
    return target if component.kind == HOOK else _checked(component.kind, target, str(component))


def resolve(component: Component) -> Any:
    """The object that a component's entry point names, whatever it is.

    Raises
    ------
    PluginError
    """
    return _resolve(component.value, str(component))


def create(kind: str, name: str, /, **parameters: Any) -> Any:
    """An instance of a component with parameters; its ``name`` is the registered one unless it has its own.

    Raises
    ------
    UnknownComponentError, PluginError, ParameterError
    """
    kind = _kind(kind)
    target = load(kind, name)
    what = f"{kind} {name!r}"
    _fits(what, target, parameters)
    make = getattr(target, "configured", target)
    with _isolated(f"{what} failed to start", keep=FioodError):
        instance = make(**parameters)
    base = _base(kind)
    if not isinstance(instance, base):
        raise PluginError(f"{what} made a {type(instance).__name__}, which is no fiood_core {base.__name__}")
    _checked_version(instance, what)
    _name(instance, name, what)
    return instance


def parameters(target: Any) -> dict[str, inspect.Parameter] | None:
    """Parameters that a class or factory takes, ``preset`` included where it has presets; None if it takes any."""
    try:
        found = dict(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in found.values()):
        return None
    found = {name: p for name, p in found.items() if p.kind is not p.VAR_POSITIONAL}
    if getattr(target, "presets", None):
        found["preset"] = inspect.Parameter("preset", inspect.Parameter.KEYWORD_ONLY, default=None)
    return found


def require_sound() -> None:
    """Load every plugin: what ``FIOOD_STRICT`` asks for before any is used.

    Raises
    ------
    PluginError
        Some are broken or clash; the message lists them all.
    """
    _require_sound(_installed())


def refresh() -> None:
    """Forget what was found; for programs that install plugins while they run."""
    _scan.cache_clear()
    _require_sound.cache_clear()


# -- finding -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Installed:
    found: Sequence[Component]
    unreadable: Sequence[str]


def _installed() -> _Installed:
    return _scan(settings.disabled_plugins())


@lru_cache(maxsize=1)
def _scan(off: frozenset[str]) -> _Installed:
    seen: set[str] = set()
    found: list[Component] = []
    unreadable: list[str] = []
    for distribution in distributions():
        try:
            declared = [c for c in _declared(distribution, off) if c.distribution not in seen]
            seen.update(c.distribution for c in declared)  # the first on sys.path is the one that imports
            found.extend(declared)
        except Exception as error:
            place = getattr(distribution, "_path", "a distribution")
            unreadable.append(f"{place} has metadata that cannot be read: {_reason(error)}; reinstall it")
    return _Installed(found, unreadable)


def _declared(distribution: Distribution, off: frozenset[str]) -> Iterator[Component]:
    if "fiood." not in (distribution.read_text("entry_points.txt") or ""):  # spares reading hundreds of METADATA files
        return
    kind_of = {group: kind for kind, group in GROUPS.items()} | {HOOK_GROUP: HOOK}
    metadata = distribution.metadata
    name = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()
    for entry in distribution.entry_points:
        if entry.group in kind_of:
            kind = kind_of[entry.group]
            disabled = bool(off & {name, entry.name, f"{kind}:{entry.name}", f"{entry.group[6:]}:{entry.name}"})
            yield Component(kind, entry.name, entry.value, name, metadata["Version"], disabled)


def _order(component: Component) -> tuple[str, str]:
    return component.name, component.distribution


def _grouped(kind: str) -> Mapping[str, list[Component]]:
    groups: dict[str, list[Component]] = defaultdict(list)
    for component in sorted(_installed().found, key=_order):
        if component.kind == kind and not component.disabled:
            groups[component.name].append(component)
    return groups


def _by_name(kind: str) -> Mapping[str, list[Component]]:
    if settings.strict():
        problems = _listing_problems()
        if problems:
            raise PluginError(_strict(problems))
    return _grouped(kind)


def _kind(kind: str) -> str:
    singular = {"vocabularies": "vocabulary"}.get(kind, kind.removesuffix("s"))
    if singular not in GROUPS:
        raise UnknownComponentError(f"no kind {kind!r}; kinds are {', '.join(GROUPS)}")
    return singular


def _module_file(module: str) -> str | None:
    parts = module.split(".")
    try:
        spec = importlib.util.find_spec(parts[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    if len(parts) == 1:
        return spec.origin
    inner = Path(spec.origin).parent.joinpath(*parts[1:])
    return next((str(p) for p in (inner.with_suffix(".py"), inner / "__init__.py") if p.exists()), None)


# -- what is wrong -------------------------------------------------------------------------------------------------


def _claimed(group: Sequence[Component]) -> str:
    claims = " and ".join(f"{c.distribution} {c.version} ({c.value})" for c in group)
    what = f"{group[0].kind} {group[0].name!r}"
    return f"{what} is claimed by {claims}; uninstall one, or name its distribution in FIOOD_DISABLE"


def _unknown(kind: str, name: str) -> str:
    if any(c.disabled and c.name == name for c in components(kind)):
        return f"{kind} {name!r} is switched off by FIOOD_DISABLE={','.join(sorted(settings.disabled_plugins()))}"
    known = names(kind)
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    elsewhere = [other for other in GROUPS if other != kind and name in _grouped(other)]
    if elsewhere:
        hint += f" (there is a {elsewhere[0]} of that name)"
    listing = "" if near else f"; registered are {', '.join(known) or 'none'}"
    return f"no {kind} is registered as {name!r}{hint}{listing}"


def _listing_problems() -> list[str]:
    return [*unreadable(), *map(_claimed, clashes())]


@lru_cache(maxsize=1)
def _require_sound(installed: _Installed) -> None:
    problems = _listing_problems()
    for component in installed.found:
        if not component.disabled:
            try:
                load_component(component)
            except PluginError as error:
                problems.append(str(error))
    if problems:
        raise PluginError(_strict(problems))


def _strict(problems: Sequence[str]) -> str:
    return "FIOOD_STRICT is set, and not every plugin is sound:" + "".join(f"\n  {line}" for line in problems)


@contextmanager
def _isolated(what: str, keep: type[BaseException] | tuple[()] = ()) -> Iterator[None]:
    """Turn whatever a plugin raises, ``SystemExit`` included, into a PluginError; the user's own Ctrl-C passes."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except keep:
        raise
    except BaseException as error:
        raise PluginError(f"{what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SystemExit):
        return f"{text} (it called sys.exit)"
    if isinstance(error, ModuleNotFoundError):
        return f"{text}; a library that it needs is not installed"
    return text


# -- loading -------------------------------------------------------------------------------------------------------


def _is_path(name: str) -> bool:
    return name.startswith(("./", "../", "/"))


def _resolve(value: str, what: str) -> Any:
    module_name, _, attribute = value.partition("[")[0].partition(":")
    with _isolated(f"{what} failed to load from {value!r}"):
        target: Any = import_module(module_name.strip())
        for part in filter(None, attribute.strip().split(".")):
            target = getattr(target, part)
    return target


def _from_module(name: str) -> Any:
    module = name.partition(":")[0]
    if module.endswith(".py"):
        raise PluginError(f"{name!r} looks like a file; write ./{name}")
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
    own = [v for v in vars(module).values() if _is_own_component(v, module, _base(kind))]
    if len(own) != 1:
        raise PluginError(f"{path} defines {len(own)} {kind} classes; name one as {location}:ClassName")
    return own[0]


def _is_own_component(value: Any, module: ModuleType, base: type) -> bool:
    own = isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    return own and not inspect.isabstract(value) and not value.__name__.startswith("_")


def _import_file(path: Path) -> ModuleType:
    digest = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()
    module_name = f"fiood_file_{path.stem}_{digest[:8]}"  # an edited file is another module
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with _isolated(f"{path} failed to load"):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _base(kind: str) -> type:
    base: type = getattr(import_module(f"fiood_core.{kind}"), kind.capitalize())
    return base


def _checked(kind: str, target: Any, what: str) -> Any:
    if isinstance(target, type) and not issubclass(target, _base(kind)):
        raise PluginError(f"{what} is a {target.__name__}, which is no fiood_core {kind.capitalize()}")
    if not callable(target):
        raise PluginError(f"{what} is a {type(target).__name__}, not a class or factory")
    _checked_version(target, what)
    return target


def _checked_version(target: Any, what: str) -> None:
    version = getattr(target, "api_version", API_WINDOW[1])
    if not isinstance(version, int):
        raise PluginError(f"{what} has api_version {version!r}; it must be an integer")
    if not API_WINDOW[0] <= version <= API_WINDOW[1]:
        advice = "update fiood-core" if version > API_WINDOW[1] else "update the plugin"
        raise PluginError(
            f"{what} is written for API {version}; this core serves {API_WINDOW[0]} to {API_WINDOW[1]}: {advice}"
        )


# -- making --------------------------------------------------------------------------------------------------------


def _fits(what: str, target: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise unless a class or factory takes the parameters that are given."""
    known = parameters(target)
    if known is None:
        return
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ParameterError(f"{what} has no parameter {name!r}{hint}; it has {_listed(known)}")
    lacking = [name for name, p in known.items() if p.default is p.empty and name not in given]
    if lacking:
        raise ParameterError(f"{what} needs {', '.join(lacking)}; it has {_listed(known)}")


def _listed(known: Mapping[str, inspect.Parameter]) -> str:
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in known.values()]
    return ", ".join(shown) or "no parameters"


def _name(instance: Any, name: str, what: str) -> None:
    if getattr(instance, "name", ""):
        return
    with _isolated(f"{what} has no place for its name; let the class have an attribute 'name'"):
        object.__setattr__(instance, "name", name)  # a frozen dataclass is no obstacle
