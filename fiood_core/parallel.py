"""Rows side by side: every core works on rows of its own, instead of all cores on every small operation.

A pass over features is hundreds of short operations a block.  Splitting each over the cores makes them wait for one
another each time, which on a busy machine takes longer than the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

import torch

AT_ONCE = 6
"""Most cores that are used: each holds what a block and a chunk need, 0.2 GB when all detectors fit 768 features."""

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Iterable[T]) -> Generator[R, None, None]:
    """``work`` of each item, in order, as many at a time as torch has threads, each on one core and without gradients.

    No more than :data:`AT_ONCE` are used.  A single item has all cores to itself.  An exception is raised where its
    item's result would have been.
    """
    before = torch.get_num_threads()
    rest = iter(items)
    begin = list(islice(rest, min(before, AT_ONCE)))
    threads, items = len(begin), chain(begin, rest)
    del begin  # an item is let go when it has been worked on
    if threads <= 1:
        for item in items:
            yield _without_gradients(work, item)
        return
    pending: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(threads, "fiood", initializer=torch.set_num_threads, initargs=(1,))
    try:
        for item in items:
            pending.append(pool.submit(_without_gradients, work, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # a thread's setting is also that of threads to come


def _without_gradients(work: Callable[[T], R], item: T) -> R:
    with torch.no_grad():
        return work(item)
