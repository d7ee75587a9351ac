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


def test_the_suite_asks_for_the_papers_21_detectors_on_its_thirty_classifiers():
    suite = suites.load(Path(__file__).parents[3] / "benchmarks" / "suites" / "fi-imagenet-1k.yaml")
    assert not suite.unknown
    plain = [detector.name for detector in suite.detectors if not detector.parameters]
    assert len(plain) == len(set(plain)) == 21
    assert {str(d) for d in suite.detectors if d.parameters} == {"dice(percentile=70.0)", "nac(alpha=3000.0)"}
    with (Path(__file__).parents[3] / "benchmarks" / "reference" / "table_a7.csv").open(newline="") as file:
        published = [row["model"] for row in csv.DictReader(file)]
    assert [backbone.parameters["preset"] for backbone in suite.backbones] == published
    probes = [backbone.parameters["preset"] for backbone in suite.backbones if backbone.name == "linear-probe"]
    assert probes == ["DINOv2-g/14", "DINOv3-7B"]
    assert [backbone.create().card.title for backbone in suite.backbones] == published


@pytest.mark.slow
def test_explaining_the_suite_names_the_weights_of_every_classifier(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    path = Path(__file__).parents[3] / "benchmarks" / "suites" / "fi-imagenet-1k.yaml"
    command = import_module("fiood_core.cli._run").command
    result = CliRunner().invoke(command, [str(path), "--explain", "--output", str(tmp_path)])
    assert result.exit_code == 1
    lines = [line for line in result.output.splitlines() if line.startswith("  backbone ")]
    assert len(lines) == 30
    assert sum("https://huggingface.co/timm/" in line for line in lines) == 29
    assert sum("https://storage.googleapis.com/bit_models/BiT-S-R101x1.npz" in line for line in lines) == 1
    assert sum("imagenet-1k-train" in line for line in lines) == 2  # what the probes learn from
