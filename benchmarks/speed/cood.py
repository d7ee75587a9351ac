"""Grouping and evaluating a COOD pool on all eleven levels: time over that of sorting the same scores, and memory.

    python benchmarks/speed/cood.py [--classes K] [--images-per-class N] [--window W] [--json FILE]

The scores are made up: what is measured is what follows the forward passes.  A quarter, a half and the whole of the
images are taken in turn, with all classes, to show that time grows with the number of images.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fiood_benchmark_cood import LEVELS, TEST_SHARE, class_severity, evaluate_levels, severity_levels

ID_PICTURES = 50_000
SHARES = (0.25, 0.5, 1.0)
REPEATS = 3


@dataclass
class Line:
    """Figures of one size, in seconds."""

    images: int
    sort: float
    group: float
    evaluate: float

    @property
    def to_sort(self) -> float:
        """Grouping and evaluation over one sort of the pool's scores."""
        return (self.group + self.evaluate) / self.sort


def main() -> None:
    """Print the table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=11_800)
    parser.add_argument("--images-per-class", type=int, default=200)
    parser.add_argument("--window", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    lines = [measure(args.classes, round(args.images_per_class * share), args.window) for share in SHARES]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    sizes = f"{args.classes} classes, window {args.window}, {LEVELS} levels, {ID_PICTURES} ID pictures"
    print(f"{sizes}; numpy {np.__version__}")
    print(f"{'images':>10} {'sort s':>8} {'group s':>8} {'levels s':>9} {'over a sort':>12} {'s per million':>14}")
    for line in lines:
        total = line.group + line.evaluate
        million = total / line.images * 1e6
        print(
            f"{line.images:>10} {line.sort:>8.3f} {line.group:>8.3f} {line.evaluate:>9.3f} "
            f"{line.to_sort:>12.2f} {million:>14.3f}"
        )
    print(f"peak memory of the process: {peak / 2**30:.2f} GiB")
    if args.json:
        found = {"classes": args.classes, "window": args.window, "peak_bytes": peak, "sizes": [*map(asdict, lines)]}
        args.json.write_text(json.dumps(found, indent=1))


def measure(classes: int, images_per_class: int, window: int) -> Line:
    """Times of one pool."""
    random = np.random.default_rng(0)
    labels = random.permutation(np.repeat(np.arange(classes), images_per_class))
    scores = random.normal(size=len(labels)) + random.normal(size=classes)[labels]
    inside = random.normal(size=ID_PICTURES) + 1
    test = random.random(len(labels)) < TEST_SHARE

    def group() -> Any:
        return severity_levels(class_severity(scores[~test], labels[~test], classes), window)

    levels = group()
    return Line(
        len(labels),
        seconds(lambda: np.sort(scores)),
        seconds(group),
        seconds(lambda: evaluate_levels(inside, scores[test], labels[test], levels)),
    )


def seconds(work: Callable[[], Any]) -> float:
    """Shortest of several runs."""
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    main()
