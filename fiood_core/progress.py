"""Progress bars on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Any


def progress_bar(items: Iterable[Any] | None = None, **options: Any) -> Any:
    """A tqdm bar whose lock is this process's own, made anew with every bar.

    tqdm's own lock is shared with forked processes: one that is killed while it holds the lock stops all others.
    """
    from tqdm import tqdm

    tqdm.set_lock(RLock())
    return tqdm(items, **options)
