"""The report: exact numbers, hostile text inert, equal bytes for equal results."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pluggy
import pytest

from fiood_core import hookspecs, results
from fiood_core.metrics import evaluate
from fiood_core.report import render, write_report
from fiood_core.report.curves import BINS, SHARES, Inside, pack, pack_rising
from fiood_core.report.payload import AT95, FRACTIONS, payload
from fiood_core.report.views import Views

HOSTILE = "<script>document.title='pwned'</script>\"'&\u2028\u202eевил"
SETS = {"tarns": "near", "moors": "near", "static": "far"}


def make_results(
    directory: Path,
    *,
    backbones: dict[str, float] | None = None,
    detectors: dict[str, float] | None = None,
    sets: dict[str, str] | None = None,
    n_id: int = 400,
    n_ood: int = 300,
    benchmark: str = "hills",
    failed: tuple[tuple[str, str], ...] = (),
) -> results.Results:
    """Results with real scores: normal ones, shifted by how good the backbone, the detector and the set are."""
    rows, broken = [], []
    for b, (backbone, strength) in enumerate((backbones or {"resnet": 0.0}).items()):
        pools: dict[str, dict[str, np.ndarray]] = {}
        for d, (detector, skill) in enumerate((detectors or {"msp": 0.4, "knn": 1.0}).items()):
            random = np.random.default_rng([b, d])
            inside = random.normal(2, 1, n_id)
            pools.setdefault("", {})[detector] = inside
            for s, (ood, group) in enumerate((sets or SETS).items()):
                row = {
                    "benchmark": benchmark,
                    "backbone": backbone,
                    "backbone_key": f"{b:064x}",
                    "detector": detector,
                    "column": detector,
                    "distribution": f"fiood-detector-{detector}",
                    "version": "0.1.0",
                    "parameters": json.dumps({"precision": "float32"}),
                    "protocol": "fpr@95:percentile-linear",
                    "id_digest": "1d" * 32,
                    "ood": ood,
                    "ood_digest": f"{s:064x}",
                    "group": group,
                    "subset": "all",
                    "aggregation": "pooled",
                    "canonical": True,
                    "publishable": True,
                    "skipped": 0,
                    "top1": 0.75,
                }
                if (detector, ood) in failed:
                    broken.append(results.complete({**row, "status": "failed", "reason": f"no {HOSTILE} there"}))
                    continue
                outside = random.normal(2 - skill - strength - (group == "far"), 1.2, n_ood)
                pools.setdefault(ood, {})[detector] = outside
                place = results.scores_path(benchmark, backbone, ood)
                metrics = asdict(evaluate(inside, outside))
                rows.append(results.complete({**row, **metrics, "status": "ok", "scores": place}))
        for ood, columns in pools.items():
            count = len(next(iter(columns.values())))
            path = directory / results.scores_path(benchmark, backbone, ood or None)
            results.write_scores(path, [f"{i}.png" for i in range(count)], columns)
    return results.Results(rows, broken, {"suite": "a walk"}, directory)
