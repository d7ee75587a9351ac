"""The conformance kit: does a component behave as its interface asks?

One function a kind, callable on a class, an instance or a registered name; ``fiood check NAME`` calls the same ones.
A plugin's test is one line:

>>> from fiood_core.testing import check_detector
>>> check_detector("msp")                # doctest: +SKIP
"""

from __future__ import annotations

from fiood_core.testing.backbones import check_backbone
from fiood_core.testing.benchmarks import check_benchmark
from fiood_core.testing.datasets import check_dataset
from fiood_core.testing.detectors import check_detector
from fiood_core.testing.outcome import ConformanceReport, Outcome
from fiood_core.testing.vocabularies import check_vocabulary

CHECKS = {
    "detector": check_detector,
    "backbone": check_backbone,
    "dataset": check_dataset,
    "vocabulary": check_vocabulary,
    "benchmark": check_benchmark,
}
"""The function of each kind."""

__all__ = [
    "CHECKS",
    "ConformanceReport",
    "Outcome",
    "check_backbone",
    "check_benchmark",
    "check_dataset",
    "check_detector",
    "check_vocabulary",
]
