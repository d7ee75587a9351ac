"""How a component with parameters is written: ``knn(k=50)`` on a command line, ``{name: knn, k: 50}`` in YAML."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fiood_core.errors import ParameterError

BARE_WORD = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|=\s*([A-Za-z_][\w./+-]*)(?=\s*(?:,|$))""")
"""A quoted text, which is left alone, or a value that is written without quotes: ``preset=ViT-B-384-21k``."""

MAX_LENGTH = 100_000
"""Longest specification that is parsed, in characters (a bank of indices fits, an attack on the parser does not)."""


class Spec(NamedTuple):
    """A component's name, and the parameters to create it with.

    Attributes
    ----------
    name : str
        A registered name, ``module:Object``, a path, or a name with an argument of its own (``folder:PATH``).
    parameters : dict
    """

    name: str
    parameters: dict[str, Any]

    def __str__(self) -> str:
        inner = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
        return f"{self.name}({inner})" if inner else self.name


def parse(value: str | Mapping[str, Any]) -> Spec:
    """The specification that a string or a YAML mapping stands for.

    Values are Python literals; a bare word is a string (``knn(precision=float64)``).  Nothing is evaluated.

    Raises
    ------
    ParameterError
        It is neither, has no name, or its parameters are not ``name=literal``.
    """
    if isinstance(value, Mapping):
        return _from_mapping(value)
    if not isinstance(value, str):
        raise ParameterError(f"a component is written as a name or a mapping with 'name', got {value!r}")
    text = value.strip()
    name, parenthesis, rest = text.partition("(")
    if not parenthesis or not text.endswith(")"):
        rest, name = ")", text
    if not name.strip():
        raise ParameterError(f"{value!r} names no component; write name or name(parameter=value)")
    return Spec(name.strip(), _arguments(rest[:-1], value))


def split(text: str) -> list[str]:
    """The specifications in a list separated by commas; commas inside brackets or quotes do not separate.

    >>> split("msp,knn(k=50, precision=float64)")
    ['msp', 'knn(k=50, precision=float64)']
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif depth and character in "'\"":
            quote = character
        depth += 0 if quote else (character in "([{") - (character in ")]}")
        if character == "," and depth <= 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _from_mapping(value: Mapping[str, Any]) -> Spec:
    if not isinstance(value.get("name"), str) or not value["name"].strip():
        raise ParameterError(f"{dict(value)!r} names no component; give it a 'name'")
    odd = [key for key in value if not isinstance(key, str)]
    if odd:
        raise ParameterError(f"{value['name']!r}: parameter names must be words, got {odd}")
    base = parse(value["name"])
    twice = sorted(set(base.parameters) & set(value))
    if twice:
        raise ParameterError(f"{value['name']!r} is given {', '.join(twice)} twice")
    return Spec(base.name, {**base.parameters, **{k: v for k, v in value.items() if k != "name"}})


def _arguments(inner: str, whole: str) -> dict[str, Any]:
    advice = f"{whole[:200]!r}: parameters are written name=value, separated by commas, e.g. knn(k=50)"
    if len(inner) > MAX_LENGTH:
        raise ParameterError(f"{advice}; this one is {len(inner)} characters long")
    try:
        call = ast.parse(f"_({BARE_WORD.sub(_quoted, inner)})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParameterError(advice) from error
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise ParameterError(advice)
    arguments: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ParameterError(advice)
        arguments[keyword.arg] = _literal(keyword.value, f"{advice}; {keyword.arg!r} is no literal")
    return arguments


def _quoted(match: re.Match[str]) -> str:
    """A bare word that Python would take for a sum or a path as a text; anything else as it is."""
    word = match[2]
    return match[0] if match[1] or word.isidentifier() else f"={word!r}"


def _literal(node: ast.expr, advice: str) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ParameterError(advice) from error
