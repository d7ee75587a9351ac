"""open_clip's real loading code on small random models of each family, from checkpoint files."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

import fiood_core as fiood
from fiood_core.column import ImageBatch
from fiood_core.errors import GateError, InputError, ParameterError
from fiood_core.testing import check_backbone
from fiood_core.text import LabelEmbeddings, zero_shot_head

open_clip = pytest.importorskip("open_clip")
timm = pytest.importorskip("timm")

from fiood_backbone_open_clip import PRESETS, OpenCLIP, check_preset  # noqa: E402

SCORES = ("mcm", "max-logit", "energy", "gen", "entropy", "margin", "gl-mcm", "neglabel", "eoe")
NAMES, LABELS = ["tench", "tabby cat", "hen"], ["sea fan", "okapi", "kelp", "moss"]
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}


@timm.models.register_model
def vit_fiood_siglip(num_classes, global_pool, **_):
    return timm.models.VisionTransformer(
        img_size=32, patch_size=16, embed_dim=32, depth=2, num_heads=2, class_token=False,
        num_classes=num_classes, global_pool=global_pool,
    )  # fmt: skip


@timm.models.register_model
def vit_fiood_perception(num_classes, global_pool, **_):
    return timm.models.Eva(
        img_size=32, patch_size=16, embed_dim=32, depth=2, num_heads=2, attn_type="rope", use_pre_transformer_norm=True,
        use_rot_pos_emb=True, ref_feat_shape=(2, 2), rope_grid_indexing="xy", attn_pool_num_heads=2,
        num_classes=num_classes, global_pool=global_pool,
    )  # fmt: skip


CONFIGS = {
    "fiood-test-clip": {
        "embed_dim": 24,
        "quick_gelu": True,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": TEXT,
    },
    "fiood-test-metaclip": {
        "embed_dim": 24,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": {**TEXT, "hf_tokenizer_name": "facebook/xlm-v-base", "pool_type": "eos", "eos_id": 2},
    },
    "fiood-test-siglip": {
        "embed_dim": 32,
        "custom_text": True,
        "init_logit_bias": -10,
        "vision_cfg": {
            "image_size": 32, "timm_model_name": "vit_fiood_siglip", "timm_model_pretrained": False,
            "timm_pool": "map", "timm_proj": "none",
        },
        "text_cfg": {
            **TEXT, "hf_tokenizer_name": "timm/ViT-B-16-SigLIP", "tokenizer_kwargs": {"clean": "canonicalize"},
            "no_causal_mask": True, "proj_bias": True, "pool_type": "last",
        },
    },
    "fiood-test-perception": {
        "embed_dim": 24,
        "custom_text": True,
        "vision_cfg": {
            "image_size": 32, "timm_model_name": "vit_fiood_perception", "timm_model_pretrained": False,
            "timm_pool": "map", "timm_proj": None,
        },
        "text_cfg": TEXT,
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def configs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs")
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    """A small word-level Hugging Face tokenizer on disk."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    corpus = ["a photo of many large small bad cropped close-up", *NAMES, *LABELS]
    words.train_from_iterator(corpus, trainers.WordLevelTrainer(special_tokens=["<pad>", "<unk>", "</s>"]))
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    folder = tmp_path_factory.mktemp("tokenizer")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="</s>"
    )
    fast.save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=CONFIGS)
def backbone(request, tmp_path, tokenizer_folder, monkeypatch):
    """A model of each family from a checkpoint file with random weights."""
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    return made(request.param, tmp_path, tokenizer_folder)


def made(name, tmp_path, tokenizer_folder):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = open_clip.create_model(name, load_weights=False)
    checkpoint = tmp_path / "random.safetensors"
    save_file({key: value.contiguous().clone() for key, value in network.state_dict().items()}, checkpoint)
    return OpenCLIP(
        name, str(checkpoint), tokenizer=tokenizer_folder if "hf_tokenizer_name" in CONFIGS[name]["text_cfg"] else None
    )


def pictures(n=5):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)) for _ in range(n)]


def test_it_conforms(backbone):
    check_backbone(lambda: OpenCLIP(backbone.model, backbone.pretrained, tokenizer=backbone.tokenizer_folder))


@torch.inference_mode()
def test_the_whole_path_from_checkpoint_to_scores(backbone):
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
    scores = {name: fiood.detector(name).score(given) for name in SCORES}
    assert all(np.isfinite(values).all() and values.shape == (5,) for values in scores.values())
    cosines = outputs.features.double() @ embeddings([*NAMES, *LABELS]).double().T
    share = torch.softmax(cosines / 0.01, dim=1)[:, :3].sum(dim=1)
    np.testing.assert_allclose(scores["neglabel"], share.numpy(), atol=1e-4)


@torch.inference_mode()
def test_text_and_picture_are_what_open_clip_gives(backbone):
    backbone.load()
    backbone.set_classes(fiood.Head(torch.eye(backbone.encode_text(NAMES).shape[1])))
    network, tokens = backbone.module, backbone.tokenizer(NAMES)
    torch.testing.assert_close(backbone.encode_text(NAMES), network.encode_text(tokens, normalize=True))
    images = torch.stack([backbone.transform(picture) for picture in pictures()])
    torch.testing.assert_close(backbone.forward(images).features, network.encode_image(images, normalize=True))


def test_a_case_sensitive_tokenizer_stays_so(tmp_path, tokenizer_folder):
    cased, canonical = (made(f"fiood-test-{name}", tmp_path, tokenizer_folder) for name in ("metaclip", "siglip"))
    assert not torch.equal(*cased.tokenizer(["hen", "HEN"]))
    assert torch.equal(*canonical.tokenizer(["hen", "HEN!"]))


def test_the_key_changes_with_the_weights_and_needs_no_loading(backbone, tmp_path):
    from safetensors.torch import load_file, save_file

    assert backbone._network is None
    key = backbone.key()
    other = tmp_path / "other.safetensors"
    save_file({name: value + 1 for name, value in load_file(backbone.pretrained).items()}, other)
    assert OpenCLIP(backbone.model, backbone.pretrained).key() == key
    assert OpenCLIP(backbone.model, str(other)).key() != key


def test_a_pickled_checkpoint_is_not_run(tmp_path):
    checkpoint = tmp_path / "evil.pt"
    torch.save({"state_dict": partial(print, "run")}, checkpoint)
    with pytest.raises(InputError, match=r"could not be loaded as fiood-test-clip"):
        OpenCLIP("fiood-test-clip", str(checkpoint)).load()


def test_a_checkpoint_of_another_model_is_refused(tmp_path, tokenizer_folder):
    other = made("fiood-test-siglip", tmp_path, tokenizer_folder)
    with pytest.raises(InputError, match="could not be loaded as fiood-test-clip"):
        OpenCLIP("fiood-test-clip", other.pretrained).load()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-model", "openai"), "open_clip has no model 'no-such-model'"),
        (("ViT-B-16-quickgelu", "no-such-tag"), "has no pre-training tag 'no-such-tag'"),
        (("ViT-B-16-quickgelu", "gone.safetensors"), "there is no checkpoint file gone.safetensors"),
    ],
)
def test_what_does_not_exist_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        OpenCLIP(*arguments).load()


def test_an_unknown_preset_is_refused():
    with pytest.raises(ParameterError, match="clip-b16"):
        OpenCLIP.configured(preset="clip")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_found_by_its_name(preset):
    assert fiood.backbone("open-clip", preset=preset).card.title == PRESETS[preset].title


@pytest.mark.parametrize("preset", PRESETS)
def test_the_towers_of_the_presets_instantiate_and_have_a_value_branch(preset):
    from fiood_core.value_branch import find

    known = PRESETS[preset]
    with torch.device("meta"):
        network = open_clip.create_model(known.model, load_weights=False, pretrained_text=False, device="meta")
    assert sum(parameter.numel() for parameter in network.parameters()) == known.parameters
    assert find(network).block is not None


@pytest.mark.parametrize("preset", [name for name, p in PRESETS.items() if p.tokenizer == "CLIP byte pairs"])
def test_activation_transform_and_tokenizer_of_the_presets_are_the_published_ones(preset):
    check_preset(OpenCLIP.configured(preset=preset), PRESETS[preset])


@pytest.mark.parametrize("preset", [name for name, p in PRESETS.items() if p.tokenizer != "CLIP byte pairs"])
def test_the_transform_of_presets_with_hub_tokenizers_is_the_published_one(preset):
    known, found = PRESETS[preset], OpenCLIP.configured(preset=preset).preprocessing
    values = (found.size, found.resize_mode, found.interpolation, tuple(found.mean), tuple(found.std))
    assert values == (known.pixels, known.resize_mode, known.interpolation, known.mean, known.std)


def test_a_tokenizer_that_lower_cases_where_it_must_not_is_noticed(monkeypatch):
    backbone = OpenCLIP.configured(preset="metaclip2-h14")
    monkeypatch.setitem(vars(backbone), "tokenizer", open_clip.get_tokenizer("ViT-B-16-quickgelu"))
    with pytest.raises(GateError, match="tokens is True and must be False"):
        check_preset(backbone, PRESETS["metaclip2-h14"])


def test_a_local_checkpoint_takes_the_transform_of_its_preset(tmp_path):
    checkpoint = tmp_path / "x.safetensors"
    found = OpenCLIP.configured(preset="openclip-h14", pretrained=str(checkpoint)).preprocessing
    assert (found.size, found.resize_mode) == (378, "squash")


def test_a_local_checkpoint_whose_transform_is_ambiguous_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"trained with different transforms.*transform_of="):
        _ = OpenCLIP("ViT-L-14", str(tmp_path / "x.safetensors")).preprocessing
    found = OpenCLIP("ViT-L-14", str(tmp_path / "x.safetensors"), transform_of="openai").preprocessing
    assert found.resize_mode == "shortest"


def test_classes_must_be_set_before_the_head_is_asked_for():
    with pytest.raises(InputError, match="set_classes"):
        _ = OpenCLIP().head


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
@torch.inference_mode()
def test_a_checkpoint_that_is_here_names_well_known_pictures(preset, monkeypatch, tmp_path):
    from fiood_dataset_digits import photo

    monkeypatch.setenv("FIOOD_OFFLINE", "1")
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path))
    backbone = OpenCLIP.configured(preset=preset)
    try:
        _ = backbone.checkpoint
    except InputError as absent:
        pytest.skip(str(absent))
    backbone.load()
    shown = {"astronaut": "astronaut", "chelsea": "tabby cat", "coffee": "cup of coffee", "rocket": "rocket"}
    names = [*shown.values(), "golden retriever", "bicycle", "pizza", "piano"]
    backbone.set_classes(zero_shot_head(names, LabelEmbeddings(backbone)))
    images = torch.stack([backbone.transform(Image.fromarray(photo(name))) for name in shown])
    assert backbone.forward(images).logits.argmax(dim=1).tolist() == list(range(len(shown)))
