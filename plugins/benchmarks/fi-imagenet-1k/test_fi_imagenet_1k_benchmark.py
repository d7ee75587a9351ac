import csv
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner
from fiood_benchmark_fi_imagenet_1k import FiImageNet1kBenchmark

from fiood_core import suite as suites
from fiood_core.testing import check_benchmark


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))


def test_it_conforms():
    check_benchmark(FiImageNet1kBenchmark)


def test_it_has_the_papers_fifteen_sets_with_the_papers_counts():
    sets = FiImageNet1kBenchmark().ood
    assert {name: ood.dataset.info.expected_count for name, ood in sets.items()} == {
        "inaturalist": 10_000,
        "openimage-o": 17_632,
        "360openset": 11_800,
        "cood": 10_350,
        "imagenet-o": 2_000,
        "textures": 5_640,
        "places": 10_000,
        "ssb-easy": 50_000,
        "ssb-hard": 49_000,
        "species": 10_000,
        "in1k-ood": 50_000,
        "clean-ood": 2_715,
        "ninco": 5_879,
        "imagenet-ood": 31_802,
        "fi-imagenet-1k": 655,
    }
    assert FiImageNet1kBenchmark().id_test.info.expected_count == 48_365


def test_explaining_it_names_everything_that_is_missing_at_once(tmp_path):
    arguments = ["--benchmark", "fi-imagenet-1k", "--backbone", "digits-cnn", "--detector", "msp", "--explain"]
    result = CliRunner().invoke(import_module("fiood_core.cli._run").command, [*arguments, "--output", str(tmp_path)])
    assert result.exit_code == 1
    for name, ood in FiImageNet1kBenchmark().ood.items():
        assert f"set {name}: " in result.output
        for remote in ood.dataset.list_files:
            assert remote.name in result.output
    for sentence in ("no pictures at", "NINCO_OOD_classes.csv", "fi_imagenet_1k_ambiguous.txt", "ILSVRC2012_img_train"):
        assert sentence in result.output


def test_the_suite_asks_for_the_papers_21_detectors_on_its_28_timm_checkpoints():
    suite = suites.load(Path(__file__).parents[3] / "benchmarks" / "suites" / "fi-imagenet-1k.yaml")
    assert not suite.unknown
    assert len(suite.detectors) == 21
    assert len({str(backbone) for backbone in suite.backbones}) == 28
    with (Path(__file__).parents[3] / "benchmarks" / "reference" / "table_a7.csv").open(newline="") as file:
        published = [row["model"] for row in csv.DictReader(file)]
    probes = {"DINOv2-g/14", "DINOv3-7B"}
    assert {backbone.parameters["preset"] for backbone in suite.backbones} == set(published) - probes
