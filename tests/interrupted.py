"""Kill runs at many moments, resume them, and compare with a clean run; a program, so that it may fork.

``python interrupted.py FOLDER KIND COUNT`` prints one JSON object: the moments tried, how many of them were reached,
and how every resumed run differs from the clean one.  The parent has imported everything and runs nothing itself, so
that a child costs a fraction of a second and inherits no thread.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["OMP_NUM_THREADS"] = "1"

import fiood_core.extract
import fiood_core.gate
import fiood_core.report.sections
from fiood_core import features, sealed, statistics, store, tasks
from fiood_core import suite as suites
from fiood_core.plan import resolve
from fiood_core.request import core_digest
from fiood_core.runner import run

TINY = Path(__file__).parent / "tiny.py"
SUITE = {
    "name": "tiny",
    "benchmark": {"name": f"{TINY}:TinyBenchmark", "train": 90},
    "backbones": [f"{TINY}:TinyNet"],
    "detectors": [f"{TINY}:{name}" for name in ("Largest", "Centre", "Dark", "Raises(rows=4)")],
    "settings": {"device": "cpu", "batch_size": 4},
}


def small_steps() -> None:
    """Shards, chunks and blocks of few rows, so that small sets have many of each."""
    store.SHARD_ROWS = fiood_core.extract.SHARD_ROWS = 12
    statistics.CHUNK_ROWS = 16
    features.FeatureSet.blocks.__defaults__ = (0, None, 4)
    tasks.SHOW_PROGRESS = False


def do_run(folder: Path, home: Path) -> None:
    """One whole run."""
    small_steps()
    run(resolve(suites.read(json.dumps(SUITE))), folder, store=home)


def child(work: Callable[[], None]) -> int:
    """Do some work in a forked process; its wait status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(9)
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def dying(kind: str, moment: int, work: Callable[[], None]) -> Callable[[], None]:
    """``work`` with SIGKILL at the n-th step of a kind."""

    def killed() -> None:
        if kind in ("write", "rename", "renamed"):
            arm(kind, moment)
        else:
            os.environ["FIOOD_TEST_KILL"] = f"{kind}:{moment}"
        work()

    return killed


def arm(kind: str, moment: int) -> None:
    """Die while the n-th file is half written, before its rename, or just after."""
    seen = 0
    replace, fsync = os.replace, os.fsync

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def half_written(handle: int) -> None:
        if not os.path.isdir(f"/proc/self/fd/{handle}"):
            size = os.fstat(handle).st_size
            if seen + 1 == moment:
                os.ftruncate(handle, size // 2)
            count()
        fsync(handle)

    def renaming(source: object, target: object) -> None:
        if kind == "rename":
            count()
        replace(source, target)  # type: ignore[arg-type]
        if kind == "renamed":
            count()

    if kind == "write":
        sealed.os.fsync = half_written  # type: ignore[attr-defined]
    else:
        sealed.os.replace = renaming  # type: ignore[attr-defined]


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a directory of results by name, the record and what shows it aside."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files if p.name not in ("run.json", "report.html")}


def differences(first: dict[str, bytes], second: dict[str, bytes]) -> list[str]:
    """Names of files that only one has, or that differ."""
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


def reached(kind: str, base: Path) -> int:
    """How many steps of a kind a clean run has."""
    low, high = 0, 1
    while killed_at(kind, high, base):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if killed_at(kind, middle, base) else (low, middle)
    return low


def killed_at(kind: str, moment: int, base: Path) -> bool:
    """Whether a clean run gets as far as the n-th step."""
    folder = base / "probe"
    status = child(dying(kind, moment, lambda: do_run(folder / "out", folder / "store")))
    shutil.rmtree(folder, ignore_errors=True)
    if not os.WIFSIGNALED(status) and status:
        raise SystemExit("a clean run failed")
    return os.WIFSIGNALED(status)


def kill_and_resume(base: Path, kind: str, count: int) -> dict[str, object]:
    """Kill at ``count`` moments spread over all steps of a kind; resume each, and compare."""
    assert child(lambda: do_run(base / "clean" / "out", base / "clean" / "store")) == 0
    clean = content(base / "clean" / "out")
    steps = reached(kind, base)
    moments = sorted({1 + round(i * (steps - 1) / (count - 1)) for i in range(count)})
    differing: dict[int, list[str]] = {}
    killed = 0
    for moment in moments:
        folder = base / f"{kind}-{moment}"
        work = partial(do_run, folder / "out", folder / "store")
        killed += os.WIFSIGNALED(child(dying(kind, moment, work)))
        status = child(work)
        found = differences(clean, content(folder / "out")) if status == 0 else ["the resumed run failed"]
        if found:
            differing[moment] = found
        shutil.rmtree(folder)
    return {"files": sorted(clean), "steps": steps, "moments": moments, "killed": killed, "differing": differing}


def side_by_side(base: Path, count: int) -> dict[str, object]:
    """Two runs at once on one store, into two directories or into the same one; each must equal a clean run."""
    assert child(lambda: do_run(base / "clean" / "out", base / "clean" / "store")) == 0
    clean = content(base / "clean" / "out")
    differing: dict[str, list[str]] = {}
    for number in range(count):
        folder = base / f"pair-{number}"
        outs = [folder / "a", folder / ("b" if number % 2 else "a")]
        pids = []
        for out in outs:
            pid = os.fork()
            if pid == 0:
                try:
                    do_run(out, folder / "store")
                except BaseException:
                    traceback.print_exc()
                    os._exit(9)
                os._exit(0)
            pids.append(pid)
        statuses = [os.waitpid(pid, 0)[1] for pid in pids]
        for out, status in zip(outs, statuses, strict=True):
            found = differences(clean, content(out)) if status == 0 else [f"the run ended with {status}"]
            if found:
                differing[f"{number}/{out.name}"] = found
        shutil.rmtree(folder)
    return {"files": sorted(clean), "pairs": count, "differing": differing}


if __name__ == "__main__":
    core_digest()  # children inherit it, so that a core edited meanwhile makes no difference
    where, what, how_often = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    found = side_by_side(where, how_often) if what == "pairs" else kill_and_resume(where, what, how_often)
    print(json.dumps(found))
