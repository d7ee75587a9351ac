"""What the environment says: where fiood keeps things, and which switches are on."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """Where features, weights and datasets are kept: ``$FIOOD_HOME``, else the user's cache folder."""
    value = os.environ.get("FIOOD_HOME")
    return Path(value).expanduser() if value else Path(platformdirs.user_cache_dir("fiood", appauthor=False))


def disabled_plugins() -> frozenset[str]:
    """Distributions or components switched off by ``$FIOOD_DISABLE``.

    Separated by commas: a distribution (``fiood-detector-msp``), a kind and name (``detectors:msp``), or a name.
    """
    return frozenset(part.strip() for part in os.environ.get("FIOOD_DISABLE", "").split(",") if part.strip())


def strict() -> bool:
    """Whether ``$FIOOD_STRICT`` asks that any broken or clashing plugin stops the program."""
    return _switch("FIOOD_STRICT")


def offline() -> bool:
    """Whether ``$FIOOD_OFFLINE`` (or ``--offline``) forbids every network call."""
    return _switch("FIOOD_OFFLINE")


def debug() -> bool:
    """Whether ``$FIOOD_DEBUG`` (or ``--debug``) asks for the traceback of an error."""
    return _switch("FIOOD_DEBUG")


def _switch(name: str) -> bool:
    return os.environ.get(name, "").lower() in {"1", "true", "yes", "on"}
