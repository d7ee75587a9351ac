import pytest

from fiood_core.errors import ParameterError
from fiood_core.spec import Spec, parse, split


@pytest.mark.parametrize(
    ("text", "name", "parameters"),
    [
        ("msp", "msp", {}),
        (" mahalanobis++ ", "mahalanobis++", {}),
        ("knn(k=50, precision=float64)", "knn", {"k": 50, "precision": "float64"}),
        ("gen(gamma=.5,m=5)", "gen", {"gamma": 0.5, "m": 5}),
        ("nac(layers=(('layer3', 300.0, 50, 500),))", "nac", {"layers": (("layer3", 300.0, 50, 500),)}),
        ("knn(preset='openood')", "knn", {"preset": "openood"}),
        ("vim(dim=None)", "vim", {"dim": None}),
        ("folder:a (copy)/labels.csv", "folder:a (copy)/labels.csv", {}),
        ("./mine.py:Mine(x=-1)", "./mine.py:Mine", {"x": -1}),
        ("msp()", "msp", {}),
        ("timm(preset=ViT-B-384-21k)", "timm", {"preset": "ViT-B-384-21k"}),
        ("timm(preset = DINOv2-g/14 , k=1)", "timm", {"preset": "DINOv2-g/14", "k": 1}),
        (
            "timm(model=resnet50.a1_in1k, checkpoint='a, b=c-d')",
            "timm",
            {"model": "resnet50.a1_in1k", "checkpoint": "a, b=c-d"},
        ),
    ],
)
def test_a_string_is_a_name_with_literal_parameters(text, name, parameters):
    assert parse(text) == Spec(name, parameters)
    assert parse(str(parse(text))) == parse(text)


def test_a_mapping_is_the_same_as_the_string():
    assert parse({"name": "knn", "k": 50}) == parse("knn(k=50)")


@pytest.mark.parametrize(
    "bad",
    [
        "knn(50)",
        "knn(k=open('x'))",
        "knn(k=a-b-)()",
        "knn(k=1-b)",
        "knn(**{})",
        "knn(k=1)(k=2)",
        "knn(k=1, k=2)",
        "(k=1)",
        "",
        3,
        {"k": 1},
        {"name": "knn(k=1)", "k": 2},
        "knn(k=" + "(" * 500 + ")" * 500 + ")",
    ],
)
def test_anything_else_is_refused(bad):
    with pytest.raises(ParameterError):
        parse(bad)


def test_commas_inside_parentheses_do_not_separate():
    assert split("msp, knn(k=50, precision='a),b'),vim") == ["msp", "knn(k=50, precision='a),b')", "vim"]
