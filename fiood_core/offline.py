"""No network: what ``--offline`` means, enforced rather than asked for."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from fiood_core import settings
from fiood_core.errors import FioodError

SWITCHES = ("FIOOD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
"""Variables that make fiood and the libraries that fetch models look at their caches only."""


class OfflineError(FioodError, OSError):
    """Something asked for the network in an offline run."""


def go_offline() -> None:
    """Forbid every network call of this process and of those it starts.

    Libraries are told by their own switches; whoever connects all the same, or asks for an address, gets an
    :class:`OfflineError`.  Sockets between processes of one machine (``AF_UNIX``) go on working.
    """
    os.environ.update(dict.fromkeys(SWITCHES, "1"))
    _guard()


@contextmanager
def caches_only() -> Iterator[None]:
    """Have fiood and the libraries that fetch models look at their caches only, for a while; nothing is enforced."""
    before = {name: os.environ.get(name) for name in SWITCHES}
    os.environ.update(dict.fromkeys(SWITCHES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


@lru_cache(maxsize=1)
def _guard() -> None:
    """Watch for connections from now on; Python cannot take an audit hook away, so it heeds the switch."""
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("socket.connect", "socket.getaddrinfo", "socket.sendto") or not settings.offline():
        return
    if event == "socket.getaddrinfo":
        raise OfflineError(f"this run is offline, and something asked for the address of {arguments[0]!r}")
    local = getattr(socket, "AF_UNIX", None)
    if arguments[0].family != local:
        raise OfflineError(f"this run is offline, and something tried to reach {arguments[1]!r}")
