"""``fiood data``: every set is listed with its state, and what is asked in vain is answered with the next step."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from PIL import Image

from fiood_core import registry
from fiood_core.cli import data
from fiood_core.errors import DataError, ParameterError, UnknownComponentError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def call(*arguments, status=0):
    result = CliRunner().invoke(data.command, arguments)
    assert result.exit_code == status, f"{result.output}\n{result.exception!r}"
    return result.output


def refused(*arguments):
    result = CliRunner().invoke(data.command, arguments)
    assert result.exit_code != 0, result.output
    return result.exception


def test_every_dataset_is_listed_with_its_size_licence_home_and_state():
    listed = {row["name"]: row for row in json.loads(call("list", "--json"))}
    assert set(listed) == set(registry.names("datasets"))
    ninco = listed["ninco"]
    assert ninco["expected_count"] == 5879
    assert ninco["state"] == "not here"
    assert any("NINCO_OOD_classes.csv" in sentence for sentence in ninco["missing"])
    assert "CC-BY-4.0" in ninco["licence"]
    assert ninco["home"] == "https://github.com/j-cb/NINCO"
    assert listed["digits"]["state"] == "ready"
    assert listed["folder"]["state"] == "takes parameters"
    lines = call("list").splitlines()
    (line,) = [line for line in lines if line.startswith("ninco ")]
    assert "5,879" in line
    assert "not here" in line


def test_a_broken_plugin_is_listed_and_the_others_too(install, fresh_registry, monkeypatch):
    folder = install("broken-set", {"broken": "broken_set:Set"}, "raise RuntimeError('no')", group="fiood.datasets")
    monkeypatch.syspath_prepend(str(folder))
    registry.refresh()
    (line,) = [line for line in call("list").splitlines() if line.startswith("broken ")]
    assert "broken-set" in line
    assert "RuntimeError: no" in line
    assert "ninco" in call("list")


@pytest.mark.shared
def test_states_go_from_lists_only_over_incomplete_to_ready(lists, home):
    place = home / "datasets" / "sun"

    def state():
        return next(row["state"] for row in json.loads(call("list", "--json")) if row["name"] == "sun")

    assert state() == "not here"
    (place / "lists").mkdir(parents=True)
    (place / "lists" / "mos_sun.txt").write_bytes((lists / "mos_sun.txt").read_bytes())
    assert state() == "lists only"
    (place / "pictures" / "images").mkdir(parents=True)
    assert state() == "incomplete"
    for line in (lists / "mos_sun.txt").read_text().splitlines():
        (place / "pictures" / line.rpartition(" ")[0]).touch()
    assert state() == "ready"
    assert call("verify", "sun", status=1).count("empty: ") == 10_000


def test_info_says_where_everything_comes_from():
    text = call("info", "inaturalist")
    for part in ("10,000", "arXiv 2105.01879", "OOD_iNaturalist_MOS_labels.csv", "sha256:e543af9e", "Google Drive"):
        assert part in text
    assert "(says who mirrors it)" in text
    assert "state:    not here" in text


def test_a_folder_is_ready_and_verified_as_it_is(tmp_path):
    (tmp_path / "mine").mkdir()
    Image.new("RGB", (20, 20)).save(tmp_path / "mine" / "a b.png")
    assert "1 pictures" in call("prepare", f"folder:{tmp_path / 'mine'}")
    assert "1 pictures" in call("verify", f"folder:{tmp_path / 'mine'}")
    assert "nothing that could be adopted" in str(refused("prepare", f"folder:{tmp_path / 'mine'}", "--adopt", "x"))


def test_what_is_asked_in_vain_is_answered():
    assert isinstance(refused("info", "nincoo"), UnknownComponentError)
    assert "did you mean 'ninco'" in str(refused("info", "nincoo"))
    assert isinstance(refused("info", "ninco(rot='x')"), ParameterError)
    assert "did you mean 'root'" in str(refused("info", "ninco(rot='x')"))
    error = refused("prepare", "imagenet-1k-train")
    assert isinstance(error, DataError)
    assert "Get ILSVRC2012_img_train.tar from https://image-net.org" in str(error)
    assert "--adopt PLACE" in str(error)
    assert "missing: ssb-hard: its list ssb_splits.json is not at" in call("verify", "ssb-hard", status=1)
