import subprocess
import sys

import pytest
import torch
from fiood_backbone_digits_clip import DigitsCLIP, _train, _trained
from fiood_dataset_digits import NAMES, Digits, UnseenDigits

import fiood_core as fiood
from fiood_core import evaluate, settings
from fiood_core.backbone import state_digest
from fiood_core.testing import check_backbone
from fiood_core.text import LabelEmbeddings, zero_shot_head

pytest.importorskip("open_clip")


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """One cache folder for all tests of this file, so that the model is trained once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIOOD_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def backbone(home):
    made = DigitsCLIP()
    made.load()
    made.set_classes(zero_shot_head(NAMES[:6], LabelEmbeddings(made)))
    return made


@torch.inference_mode()
def features(backbone, dataset):
    images = torch.stack([backbone.transform(dataset.open(image_id)) for image_id in dataset.view().ids])
    return backbone.forward(images).features


@pytest.mark.slow
def test_it_conforms(home):
    check_backbone(DigitsCLIP)


@pytest.mark.slow
def test_it_tells_the_digits_apart_by_their_names(backbone):
    dataset = Digits("test")
    rows = backbone.head(features(backbone, dataset)).argmax(dim=1)
    targets = torch.tensor([target for (target,) in dataset.view().targets])
    assert (rows == targets).float().mean() > 0.9


@pytest.mark.slow
def test_negative_labels_help_on_digits_that_are_no_class(backbone):
    heads = {
        "head": backbone.head,
        "negatives": zero_shot_head(NAMES[6:], LabelEmbeddings(backbone)),
    }
    seen, unseen = (fiood.FeatureSet(features(backbone, d("test")), **heads) for d in (Digits, UnseenDigits))
    auroc = {
        name: evaluate(fiood.detector(name).score(seen), fiood.detector(name).score(unseen)).auroc
        for name in ("msp", "neglabel")
    }
    assert auroc["neglabel"] > auroc["msp"] + 0.05


@pytest.mark.slow
def test_a_damaged_file_is_trained_anew_to_the_same_bits(backbone, monkeypatch):
    place = f"digits-clip-{backbone.weights_digest[:16]}.safetensors"
    path = settings.home() / "weights" / place
    good = path.read_bytes()
    path.write_bytes(good[:-100])
    assert state_digest(_trained(place)) == state_digest(backbone.module)
    assert path.read_bytes() == good


def test_the_key_needs_neither_open_clip_nor_training(tmp_path):
    code = (
        "import sys, os; from fiood_backbone_digits_clip import DigitsCLIP; b = DigitsCLIP(); b.key(); b.text_digest;"
        "assert 'open_clip' not in sys.modules; assert not os.listdir(os.environ['FIOOD_HOME'])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"FIOOD_HOME": str(tmp_path), "PATH": ""})


@pytest.mark.slow
def test_training_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    _train()
    assert torch.equal(torch.rand(2), expected)
