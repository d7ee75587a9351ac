"""transformers' real loading code on a small random AIMv2 folder."""

import json

import numpy as np
import pytest
import torch
from fiood_backbone_aimv2 import AIMv2
from PIL import Image

import fiood_core as fiood
from fiood_core.column import ImageBatch
from fiood_core.errors import InputError
from fiood_core.testing import check_backbone
from fiood_core.text import LabelEmbeddings, zero_shot_head

transformers = pytest.importorskip("transformers")

SCORES = ("mcm", "max-logit", "energy", "gen", "entropy", "margin", "gl-mcm", "neglabel", "eoe")
NAMES, LABELS = ["tench", "tabby cat", "hen"], ["sea fan", "okapi", "kelp", "moss"]
END = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Configuration, random weights, image processor and a word-level tokenizer, as a repository holds them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    place = tmp_path_factory.mktemp("aimv2")
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.Aimv2Config(
        projection_dim=16,
        vision_config={**shape, "image_size": 32, "patch_size": 16},
        text_config={**shape, "vocab_size": 64, "max_position_embeddings": 16, "eos_token_id": END},
    )
    torch.manual_seed(0)
    transformers.Aimv2Model(config).save_pretrained(place)
    transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(
        place
    )
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    corpus = ["a photo of many large small bad cropped close-up", *NAMES, *LABELS]
    words.train_from_iterator(corpus, trainers.WordLevelTrainer(special_tokens=["<pad>", "<unk>", "</s>"]))
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="</s>"
    ).save_pretrained(place)
    return str(place)


def pictures(n=5):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)) for _ in range(n)]


def test_it_conforms(folder):
    check_backbone(AIMv2, {"pretrained": folder})


@torch.inference_mode()
def test_the_whole_path_from_folder_to_scores(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path))
    backbone = AIMv2(folder)
    backbone.load()
    embeddings = LabelEmbeddings(backbone)
    backbone.set_classes(zero_shot_head(NAMES, embeddings))
    images = torch.stack([backbone.transform(picture) for picture in pictures()])
    (column,) = fiood.detector("gl-mcm").columns
    captured = {}
    with column.watch(backbone, captured):
        outputs = backbone.forward(images)
    local = column.compute(ImageBatch(images, *outputs, captured=captured), backbone, backbone.head)
    torch.testing.assert_close(outputs.features.norm(dim=1), torch.ones(5))
    given = fiood.FeatureSet(
        features=outputs.features,
        head=backbone.head,
        negatives=zero_shot_head(LABELS, embeddings),
        columns={column.key: local},
    )
    for name in SCORES:
        scores = fiood.detector(name).score(given)
        assert scores.shape == (5,)
        assert np.isfinite(scores).all()


@torch.inference_mode()
def test_padding_does_not_change_a_text(folder):
    backbone = AIMv2(folder)
    backbone.load()
    given = backbone.tokenizer(["tabby cat"], return_tensors="pt")
    bare = backbone.module.get_text_features(input_ids=given["input_ids"], attention_mask=given["attention_mask"])
    bare = torch.nn.functional.normalize(getattr(bare, "pooler_output", bare), dim=1)
    torch.testing.assert_close(backbone.encode_text(["tabby cat"]), bare, rtol=1e-4, atol=1e-5)


def test_a_folder_without_a_text_tower_is_refused(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((type(tmp_path)(folder) / name).read_text())
    weights = load_file(f"{folder}/model.safetensors")
    vision = {key: value for key, value in weights.items() if not key.startswith("text_model")}
    save_file(vision, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="no AIMv2 with a text tower"):
        AIMv2(str(tmp_path)).load()


def test_an_incomplete_folder_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(InputError, match=r"no model\.safetensors and no preprocessor_config\.json"):
        AIMv2(str(tmp_path)).load()


def test_offline_a_missing_repository_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("FIOOD_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(InputError, match="could not be fetched"):
        AIMv2("apple/no-such-model").load()


def test_the_published_tower_instantiates_and_has_a_value_branch():
    from fiood_core.value_branch import find

    config = transformers.Aimv2Config(projection_dim=768, vision_config={}, text_config={})
    with torch.device("meta"):
        network = transformers.Aimv2Model(config)
    assert sum(parameter.numel() for parameter in network.parameters()) == AIMv2.card.parameters
    assert find(network).block is not None
