"""Loading plugins in another process, so that one that hangs, exits or crashes is only reported.

One worker loads component after component, with the interfaces (and torch) imported before the clock starts.  After a
failure it is replaced, so that nothing a broken plugin left behind reaches the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import IO

from fiood_core import registry
from fiood_core.errors import PluginError
from fiood_core.registry import Component

START_SECONDS = 120.0
"""How long the worker may take to import the interfaces."""

_WORKER = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from fiood_core.probe import serve; serve()"


@dataclass(frozen=True)
class Outcome:
    """What came of loading a component: ``reason`` is None if it loaded."""

    component: Component
    reason: str | None
    seconds: float


def probe(components: Iterable[Component], timeout: float = 30.0) -> Iterator[Outcome]:
    """Load each component in another process, each within a time limit in seconds.

    Raises
    ------
    PluginError
        The worker process cannot start.
    """
    worker: _Worker | None = None
    try:
        for component in components:
            worker = worker or _Worker()
            began = time.monotonic()
            reason = worker.load(component, timeout)
            yield Outcome(component, reason, time.monotonic() - began)
            if reason is not None:
                worker.stop()
                worker = None
    finally:
        if worker is not None:
            worker.stop()


class _Worker:
    """A process that loads components and says what came of it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        started = self._answer(START_SECONDS)
        if started is not None:
            self.stop()
            raise PluginError(f"the process that loads plugins did not start: {started}")

    def load(self, component: Component, timeout: float) -> str | None:
        """Load a component; the reason if that fails."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: the answer will say so
            self._process.stdin.write(json.dumps(dataclasses.asdict(component)) + "\n")
            self._process.stdin.flush()
        return self._answer(timeout)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _answer(self, timeout: float) -> str | None:
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            return f"it did not load within {timeout:g} s"
        if not line:
            return f"it ended the process (exit status {self._process.wait()})"
        reason: str | None = json.loads(line)
        return reason


def serve() -> None:
    """The worker's side: a component in JSON on each line of stdin, its reason in JSON on each line of stdout."""
    requests, answers = _take_over(0, "r"), _take_over(1, "w")
    for kind in registry.GROUPS:
        import_module(f"fiood_core.{kind}")
    _say(answers, None)
    for line in requests:
        component = Component(**json.loads(line))
        try:
            registry.load_component(component)
        except PluginError as error:
            _say(answers, str(error))
        except KeyboardInterrupt:
            _say(answers, f"{component} raised KeyboardInterrupt")
        else:
            _say(answers, None)


def _take_over(descriptor: int, mode: str) -> IO[str]:
    """A standard stream for the worker alone; plugins that read or print get the null device."""
    stream = os.fdopen(os.dup(descriptor), mode, encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, descriptor)
    os.close(null)
    return stream


def _say(answers: IO[str], reason: str | None) -> None:
    answers.write(json.dumps(reason) + "\n")
    answers.flush()
