"""How components are found, refused and made."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import fiood_core as fiood
from fiood_core import registry
from fiood_core.errors import ParameterError, PluginError, UnknownComponentError

DETECTOR = """
from fiood_core import Detector

class Mine(Detector):
    api_version = 1
    k: int = 3

    def score_block(self, block):
        return block.max_logit
"""

pytestmark = pytest.mark.usefixtures("fresh_registry")


@pytest.fixture
def plug(install, monkeypatch):
    """Install a plugin on this process's path."""

    def plug(*args, **kwargs) -> Path:
        folder = install(*args, **kwargs)
        if str(folder) not in sys.path:
            monkeypatch.syspath_prepend(str(folder))
        registry.refresh()
        return folder

    before = set(sys.modules)
    yield plug
    for name in set(sys.modules) - before:
        if name.startswith("aa_"):
            del sys.modules[name]


def test_a_plugin_is_found_by_its_entry_point_and_not_imported(plug):
    folder = plug("aa-one", {"one": "aa_one:Mine"}, DETECTOR)
    assert "one" in fiood.names("detectors")
    component = registry.find("detector", "one")
    assert (component.distribution, component.version) == ("aa-one", "1.0")
    assert component.path == str(folder / "aa_one.py")
    assert "aa_one" not in sys.modules
    assert fiood.detector("one", k=4).parameters["k"] == 4


def test_an_instance_knows_its_registered_name(plug):
    plug("aa-one", {"one": "aa_one:Mine"}, DETECTOR)
    assert fiood.detector("one").name == "one"


def test_a_frozen_dataclass_and_a_factory_get_their_name_too(plug):
    source = """
from dataclasses import dataclass
from fiood_core import Vocabulary, Labels

@dataclass(frozen=True)
class Frozen(Vocabulary):
    size: int = 2

    def labels(self, context):
        return Labels(("a",) * self.size)

def factory(size=3):
    return Frozen(size)

@dataclass(frozen=True)
class Named(Frozen):
    name: str = "its own"
"""
    entries = {"frozen": "aa_v:Frozen", "factory": "aa_v:factory", "named": "aa_v:Named"}
    plug("aa-v", entries, source, group="fiood.vocabularies")
    assert [fiood.vocabulary(name).name for name in entries] == ["frozen", "factory", "its own"]


def test_a_class_without_a_place_for_its_name_is_refused(plug):
    source = """
from fiood_core import Vocabulary

class Bad(Vocabulary):
    @property
    def name(self):
        return ""
    def labels(self, context): ...
"""
    plug("aa-v", {"bad": "aa_v:Bad"}, source, group="fiood.vocabularies")
    with pytest.raises(PluginError, match="has no place for its name"):
        fiood.vocabulary("bad")


def test_editable_plus_wheel_of_one_distribution_counts_once(plug):
    plug("aa-one", {"one": "aa_one:Mine"}, DETECTOR, version="0.9", place="older")
    plug("AA_one", {"one": "AA_one:Mine"}, DETECTOR, version="1.1", place="newer")
    assert [c.version for c in registry.components("detectors") if c.name == "one"] == ["1.1"]
    assert not [group for group in registry.clashes() if group[0].name == "one"]


def test_two_distributions_that_claim_a_name_are_both_named_and_only_that_name_stops(plug):
    plug("aa-one", {"one": "aa_one:Mine", "other": "aa_one:Mine"}, DETECTOR)
    plug("aa-two", {"one": "aa_two:Mine"}, DETECTOR, version="2.5", place="second")
    with pytest.raises(PluginError, match=r"'one' is claimed by aa-one 1\.0 .* and aa-two 2\.5 .*FIOOD_DISABLE"):
        fiood.detector("one")
    assert fiood.detector("other").name == "other"
    assert [[c.distribution for c in group] for group in registry.clashes()] == [["aa-one", "aa-two"]]


def test_a_disabled_distribution_settles_a_clash(plug, monkeypatch):
    plug("aa-one", {"one": "aa_one:Mine"}, DETECTOR)
    plug("aa-two", {"one": "aa_two:Mine"}, DETECTOR, place="second")
    monkeypatch.setenv("FIOOD_DISABLE", "aa-one")
    assert registry.find("detector", "one").distribution == "aa-two"


@pytest.mark.parametrize("switch", ["one", "detectors:one", "detector:one", "aa-one", "x, one"])
def test_a_component_can_be_switched_off(plug, monkeypatch, switch):
    plug("aa-one", {"one": "aa_one:Mine"}, DETECTOR)
    assert "one" in fiood.names("detectors")
    monkeypatch.setenv("FIOOD_DISABLE", switch)
    assert "one" not in fiood.names("detectors")
    with pytest.raises(UnknownComponentError, match="switched off by FIOOD_DISABLE"):
        fiood.detector("one")


def test_an_unknown_name_suggests_the_near_ones(plug):
    plug("aa-one", {"wobbly-distance": "aa_one:Mine"}, DETECTOR)
    with pytest.raises(UnknownComponentError, match="'woble-distance'; did you mean 'wobbly-distance'"):
        fiood.detector("woble-distance")
    with pytest.raises(UnknownComponentError, match="there is a detector of that name"):
        fiood.backbone("wobbly-distance")


def test_an_unknown_kind_names_the_kinds():
    with pytest.raises(UnknownComponentError, match="kinds are detector, backbone"):
        fiood.names("detektors")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise ValueError('broken on purpose')", "ValueError: broken on purpose"),
        ("import sys; sys.exit(3)", r"SystemExit: 3 \(it called sys\.exit\)"),
        ("import aa_no_such_library", "No module named 'aa_no_such_library'; a library"),
        ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
        ("def f(:", "SyntaxError"),
        ("Other = 1", "has no attribute 'Mine'"),
        ("Mine = 3", "is a int, not a class or factory"),
        ("class Mine: pass", "is a Mine, which is no fiood_core Detector"),
        (DETECTOR.replace("api_version = 1", "api_version = 2"), "API 2; this core serves 1 to 1: update fiood-core"),
        (DETECTOR.replace("api_version = 1", "api_version = 0"), "update the plugin"),
        (DETECTOR.replace("api_version = 1", "api_version = 'x'"), "must be an integer"),
    ],
)
def test_whatever_a_plugin_does_at_import_names_the_distribution_and_the_reason(plug, source, reason):
    plug("aa-bad", {"bad": "aa_bad:Mine"}, source, version="7.1")
    plug("aa-good", {"good": "aa_good:Mine"}, DETECTOR, place="second")
    with pytest.raises(PluginError, match=rf"(?s)detector 'bad' of aa-bad 7\.1 .*{reason}"):
        fiood.detector("bad")
    assert fiood.detector("good").name == "good"


def test_ctrl_c_during_an_import_is_the_users(plug):
    plug("aa-bad", {"bad": "aa_bad:Mine"}, "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        fiood.detector("bad")


def test_a_factory_that_makes_something_else_is_refused(plug):
    plug("aa-bad", {"bad": "aa_bad:make"}, "def make(): return 3")
    with pytest.raises(PluginError, match="made a int, which is no fiood_core Detector"):
        fiood.detector("bad")


@pytest.mark.parametrize("body", ["raise RuntimeError('no luck')", "import sys; sys.exit('no luck')"])
def test_a_constructor_that_fails_is_the_plugins_failure(plug, body):
    plug("aa-bad", {"bad": "aa_bad:make"}, f"def make(): {body}")
    with pytest.raises(PluginError, match=r"'bad' failed to start: .*no luck"):
        fiood.detector("bad")


def test_a_wrong_parameter_lists_those_that_exist_and_suggests_the_near_one(plug):
    plug("aa-one", {"one": "aa_one:Mine"}, DETECTOR)
    plug("aa-two", {"two": "aa_two:make"}, "def make(where, size=3): ...", place="second")
    with pytest.raises(ParameterError, match=r"no parameter 'precison' \(did you mean 'precision'\?\); it has .*k=3"):
        fiood.detector("one", precison="float64")
    with pytest.raises(ParameterError, match=r"no parameter 'sise'.*it has where, size=3"):
        fiood.detector("two", sise=1)
    with pytest.raises(ParameterError, match="needs where; it has where, size=3"):
        fiood.detector("two")
    with pytest.raises(ParameterError, match="'k' must be int, got 'x'"):
        fiood.detector("one", k="x")


def test_module_and_object_name_a_component(plug):
    plug("aa-one", {}, DETECTOR)
    assert fiood.detector("aa_one:Mine", k=5).parameters["k"] == 5
    assert fiood.detector("aa_one:Mine").name == "aa_one:Mine"
    with pytest.raises(PluginError, match="no attribute 'Yours'"):
        fiood.detector("aa_one:Yours")


def test_a_path_names_a_component_and_an_edit_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(DETECTOR)
    assert fiood.detector("./mine.py").parameters["k"] == 3
    before = registry.origin("detector", "./mine.py")
    file.write_text(DETECTOR.replace("= 3", "= 8"))
    assert fiood.detector("./mine.py:Mine").parameters["k"] == 8
    after = registry.origin("detector", "./mine.py:Mine")
    assert before.distribution == after.distribution == "mine.py"
    assert before.version != after.version


def test_a_path_that_does_not_name_one_class_says_what_to_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.py").write_text(DETECTOR + "class Yours(Mine): pass\nclass _Base(Mine): pass\n")
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(PluginError, match=r"defines 2 detector classes; name one as \./two\.py:ClassName"):
        fiood.detector("./two.py")
    with pytest.raises(PluginError, match="there is no file"):
        fiood.detector("./absent.py")
    with pytest.raises(PluginError, match=r"failed to load: ZeroDivisionError"):
        fiood.detector("./bad.py")
    with pytest.raises(PluginError, match=r"looks like a file; write \./two\.py:Mine"):
        fiood.detector("two.py:Mine")


def test_strict_mode_lists_everything_that_is_broken_or_clashes(plug, monkeypatch):
    others = ",".join({c.distribution for c in [*registry.components(), *registry.hooks()]})
    monkeypatch.setenv("FIOOD_DISABLE", others)
    plug("aa-good", {"good": "aa_good:Mine"}, DETECTOR)
    plug("aa-bad", {"bad": "aa_bad:Mine"}, "1 / 0", place="b")
    assert fiood.detector("good").name == "good"
    monkeypatch.setenv("FIOOD_STRICT", "1")
    with pytest.raises(PluginError, match=r"(?s)FIOOD_STRICT is set.*'bad' of aa-bad 1\.0.*ZeroDivisionError"):
        fiood.detector("good")
    plug("aa-too", {"good": "aa_too:Mine"}, DETECTOR, place="c")
    with pytest.raises(PluginError, match=r"'good' is claimed by aa-good 1\.0"):
        fiood.names("detectors")
    monkeypatch.setenv("FIOOD_DISABLE", f"{others},aa-too,aa-bad")
    assert fiood.detector("good").name == "good"


def test_metadata_that_cannot_be_read_is_reported_and_the_rest_is_found(plug):
    folder = plug("aa-bad", {"bad": "aa_bad:Mine"}, DETECTOR)
    (folder / "aa_bad-1.0.dist-info" / "METADATA").unlink()
    plug("aa-good", {"good": "aa_good:Mine"}, DETECTOR, place="second")
    assert "good" in fiood.names("detectors")
    assert [line for line in registry.unreadable() if "aa_bad-1.0.dist-info" in line]


def test_component_is_plain_data():
    component = registry.Component("detector", "a", "m:A", "d", "1")
    assert dataclasses.asdict(component)["disabled"] is False
    assert str(component) == "detector 'a' of d 1"
