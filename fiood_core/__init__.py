"""fiood: measure how well classifiers and vision-language models notice what they do not know.

The public API, each name imported on first use so that ``import fiood_core`` is cheap:

>>> import fiood_core as fiood
>>> fiood.names("detectors")             # doctest: +SKIP
>>> fiood.detector("vim", dim=512)       # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LOOKUPS = ("backbone", "detector", "vocabulary", "dataset", "benchmark")
"""Interface modules that are also called to look a component up; see :mod:`fiood_core._lookup`."""

_HOME = {
    "names": "registry",
    "Head": "head",
    "FeatureSet": "features",
    "Block": "features",
    "Detector": "detector",
    "Paper": "detector",
    "Column": "column",
    "Statistic": "statistics",
    "Backbone": "backbone",
    "VisionLanguageBackbone": "backbone",
    "Card": "backbone",
    "from_module": "backbone",
    "Dataset": "dataset",
    "View": "dataset",
    "Info": "dataset",
    "Concept": "dataset",
    "Vocabulary": "vocabulary",
    "Labels": "vocabulary",
    "Benchmark": "benchmark",
    "SimpleBenchmark": "benchmark",
    "OODSet": "benchmark",
    "score_all": "scoring",
    "evaluate": "metrics",
    "Metrics": "metrics",
    "FioodError": "errors",
}

__all__ = ["__version__", *_LOOKUPS, *_HOME]


def __getattr__(name: str) -> Any:
    if name in _LOOKUPS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from fiood_core.backbone import Backbone as Backbone
    from fiood_core.backbone import Card as Card
    from fiood_core.backbone import VisionLanguageBackbone as VisionLanguageBackbone
    from fiood_core.backbone import from_module as from_module
    from fiood_core.benchmark import Benchmark as Benchmark
    from fiood_core.benchmark import OODSet as OODSet
    from fiood_core.benchmark import SimpleBenchmark as SimpleBenchmark
    from fiood_core.column import Column as Column
    from fiood_core.dataset import Concept as Concept
    from fiood_core.dataset import Dataset as Dataset
    from fiood_core.dataset import Info as Info
    from fiood_core.dataset import View as View
    from fiood_core.detector import Detector as Detector
    from fiood_core.detector import Paper as Paper
    from fiood_core.errors import FioodError as FioodError
    from fiood_core.features import Block as Block
    from fiood_core.features import FeatureSet as FeatureSet
    from fiood_core.head import Head as Head
    from fiood_core.metrics import Metrics as Metrics
    from fiood_core.metrics import evaluate as evaluate
    from fiood_core.registry import names as names
    from fiood_core.scoring import score_all as score_all
    from fiood_core.statistics import Statistic as Statistic
    from fiood_core.vocabulary import Labels as Labels
    from fiood_core.vocabulary import Vocabulary as Vocabulary

    def backbone(name: str, /, **parameters: Any) -> Backbone: ...
    def detector(name: str, /, **parameters: Any) -> Detector: ...
    def vocabulary(name: str, /, **parameters: Any) -> Vocabulary: ...
    def dataset(name: str, /, **parameters: Any) -> Dataset: ...
    def benchmark(name: str, /, **parameters: Any) -> Benchmark: ...
