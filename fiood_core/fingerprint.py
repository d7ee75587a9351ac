"""A digest of what an object holds and does, the same in every process: what transforms are known by.

``repr`` will not do: it rounds tensors, and that of a lambda holds an address.
"""

from __future__ import annotations

import dis
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from fiood_core.errors import InputError

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def fingerprint(value: object) -> str:
    """SHA-256 of an object's class and content.

    Tensors count by their bytes, other objects by class, ``repr`` (unless it holds an address) and pickled state.
    Functions and classes that are installed count by their name; those of a script, lambdas and inner functions by
    their bytecode, defaults, closure and the globals that they read.

    Raises
    ------
    InputError
        It holds something with no content to go by, an open file for example.
    """
    return _Walk().digest(value)


def behaviour(kinds: Iterable[type]) -> str:
    """SHA-256 of classes: installed ones by their name, others by the functions they and their bases define too."""
    walk = _Walk()
    parts = [[_name(kind), *map(walk.digest, _functions(kind))] for kind in kinds]
    return walk.digest(parts)


class _Walk:
    """One walk through an object; what is being walked already counts by its depth, so circles end."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}

    def digest(self, value: object) -> str:
        if id(value) in self._open and not isinstance(value, _PLAIN):
            return f"circle {self._open[id(value)]}"
        self._open[id(value)] = len(self._open)
        try:
            sha = hashlib.sha256(f"{_name(type(value))}\n".encode())
            for part in self._parts(value):
                sha.update(part if isinstance(part, bytes) else f"{part}\n".encode())
            return sha.hexdigest()
        finally:
            del self._open[id(value)]

    def _parts(self, value: Any) -> Iterator[str | bytes]:
        if isinstance(value, _PLAIN):
            yield repr(value)
        elif isinstance(value, torch.Tensor):
            yield repr((value.dtype, tuple(value.shape)))
            yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        elif isinstance(value, np.ndarray) and value.dtype != object:
            yield repr((value.dtype.str, value.shape))
            yield value.tobytes()
        elif isinstance(value, (type, ModuleType, BuiltinFunctionType)):
            yield _name(value)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, MethodType):
            yield self.digest(value.__func__)
            yield self.digest(value.__self__)
        elif isinstance(value, CodeType):
            yield value.co_code
            yield self.digest([*value.co_names, *value.co_varnames, *value.co_freevars, *value.co_consts])
        elif type(value) in (list, tuple):
            yield from map(self.digest, value)
        elif isinstance(value, (set, frozenset)):
            yield from sorted(map(self.digest, value))
        elif type(value) is dict:
            yield from (self.digest(pair) for pair in value.items())
        else:
            yield from self._object(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield _name(function)
        if is_installed(function):
            return
        yield self.digest(function.__code__)
        yield self.digest([function.__defaults__, function.__kwdefaults__])
        yield from (self.digest(cell.cell_contents) for cell in function.__closure__ or ())
        for name in _globals_read(function.__code__):
            if name in function.__globals__:
                yield name
                yield self.digest(function.__globals__[name])

    def _object(self, value: Any) -> Iterator[str]:
        shown = repr(value)
        yield "" if _ADDRESS.search(shown) else shown
        yield from map(self.digest, _functions(type(value)))
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:
            raise InputError(
                f"a {_name(type(value))} has no content that could be digested ({error}); build the transform from "
                "functions and transforms with plain attributes"
            ) from error
        if isinstance(reduced, str):
            yield reduced
            return
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        yield self.digest([make, arguments, state, list(items or ()), list(pairs or ())])


def is_installed(what: type | FunctionType) -> bool:
    """Whether a class or function belongs to an installed package or to Python, so that its name says what it does."""
    if "<" in what.__qualname__ or what.__module__ == "__main__":
        return False
    module = sys.modules.get(what.__module__)
    place = getattr(module, "__file__", None)
    return module is not None and (place is None or any(root in Path(place).parents for root in _roots()))


@cache
def _roots() -> tuple[Path, ...]:
    return tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _functions(kind: type) -> list[FunctionType]:
    """What a class and its bases define, as far as they are not installed."""
    own = [base for base in kind.__mro__ if not is_installed(base)]
    return [value for base in own for value in vars(base).values() if isinstance(value, FunctionType)]


def _globals_read(code: CodeType) -> Sequence[str]:
    """Names of the globals that a function reads, inner functions included, in order."""
    names = [i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _globals_read(constant)]
    return list(dict.fromkeys([*names, *inner]))


def _name(what: Any) -> str:
    return f"{getattr(what, '__module__', '')}.{getattr(what, '__qualname__', getattr(what, '__name__', ''))}"
