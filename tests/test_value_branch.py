"""Each family's value branch on small random towers, against the tower's own forward on one token at a time."""

import numpy as np
import pytest
import torch
from torch import nn

from fiood_core.errors import InputError
from fiood_core.value_branch import find, from_weights

PIXELS, PATCH, WIDTH, JOINT = 32, 16, 24, 12


def open_clip_tower(pixels):
    transformer = pytest.importorskip("open_clip.transformer")
    from open_clip.model import QuickGELU

    return transformer.VisionTransformer(
        image_size=pixels, patch_size=PATCH, width=WIDTH, layers=2, heads=3, mlp_ratio=2.0, output_dim=JOINT,
        act_layer=QuickGELU, ls_init_value=0.3,
    )  # fmt: skip


def in_timm_model(trunk):
    from open_clip.timm_model import TimmModel

    wrapper = TimmModel.__new__(TimmModel)
    nn.Module.__init__(wrapper)
    wrapper.trunk, wrapper.head = trunk, nn.Sequential()
    return wrapper


def siglip_tower(pixels):
    timm = pytest.importorskip("timm")
    return in_timm_model(
        timm.models.VisionTransformer(
            img_size=pixels, patch_size=PATCH, embed_dim=WIDTH, depth=2, num_heads=3, class_token=False,
            global_pool="map", num_classes=0, init_values=0.3,
        )
    )  # fmt: skip


def perception_tower(pixels):
    timm = pytest.importorskip("timm")
    return in_timm_model(
        timm.models.Eva(
            img_size=pixels, patch_size=PATCH, embed_dim=WIDTH, depth=2, num_heads=3, global_pool="map",
            attn_type="rope", use_pre_transformer_norm=True, use_rot_pos_emb=True, rope_grid_offset=1.0,
            ref_feat_shape=(2, 2), rope_grid_indexing="xy", attn_pool_num_heads=3, num_classes=JOINT, init_values=0.3,
        )
    )  # fmt: skip


def aimv2_model(pixels):
    transformers = pytest.importorskip("transformers")
    vision = {"hidden_size": WIDTH, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
    text = {**vision, "vocab_size": 11, "max_position_embeddings": 5}
    return transformers.Aimv2Model(
        transformers.Aimv2Config(
            projection_dim=JOINT, vision_config={**vision, "image_size": pixels, "patch_size": PATCH}, text_config=text
        )
    )


TOWERS = {"open-clip": open_clip_tower, "siglip": siglip_tower, "perception": perception_tower, "aimv2": aimv2_model}


def make(family, pixels=PIXELS):
    torch.manual_seed(0)
    model = TOWERS[family](pixels).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # towers start with zero biases and norms of one, which hide mistakes
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def encode(model, images):
    out = model.get_image_features(images) if type(model).__name__ == "Aimv2Model" else model(images)
    return nn.functional.normalize(getattr(out, "pooler_output", out), dim=-1)


def tokens_and_branch(model, images):
    branch, caught = find(model), {}
    with branch.block.register_forward_pre_hook(lambda _module, args: caught.update(tokens=args[0])):
        embedding = encode(model, images)
    return caught["tokens"], branch, embedding


def one_at_a_time(model, patches):
    """The tower's own last block, norm and pooling on sequences of one token, where attention is the identity."""
    alone = patches.reshape(-1, 1, WIDTH)
    if type(model).__name__ == "Aimv2Model":
        vision = model.vision_model
        return model.visual_projection(vision.head(vision.rms_norm(vision.encoder.layers[-1](alone))))
    if hasattr(model, "trunk"):
        return model.trunk.forward_head(model.trunk.norm(model.trunk.blocks[-1](alone)))
    return model.ln_post(model.transformer.resblocks[-1](alone))[:, 0] @ model.proj


@pytest.mark.parametrize("family", TOWERS)
@torch.no_grad()
def test_patches_equal_the_tower_run_on_one_token_at_a_time(family):
    model = make(family)
    tokens, branch, _ = tokens_and_branch(model, torch.randn(3, 3, PIXELS, PIXELS))
    patches = branch(tokens)
    assert patches.shape[:2] == (3, 4)
    expected = nn.functional.normalize(one_at_a_time(model, tokens[:, branch.prefix :]), dim=-1)
    torch.testing.assert_close(patches.flatten(0, 1), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["siglip", "aimv2"])
@torch.no_grad()
def test_the_only_patch_of_an_attention_pooled_tower_is_the_image(family):
    tokens, branch, embedding = tokens_and_branch(make(family, pixels=PATCH), torch.randn(2, 3, PATCH, PATCH))
    torch.testing.assert_close(branch(tokens)[:, 0], embedding, rtol=1e-6, atol=1e-7)


@torch.no_grad()
def test_the_unmodified_tokens_are_only_pooled_alone():
    model = make("perception")
    branch, caught = find(model), {}
    with branch.block.register_forward_hook(lambda _module, _args, out: caught.update(tokens=out)):
        model(torch.randn(2, 3, PIXELS, PIXELS))
    alone = model.trunk.norm(caught["tokens"][:, 1:]).reshape(-1, 1, WIDTH)
    expected = nn.functional.normalize(model.trunk.forward_head(alone), dim=-1)
    torch.testing.assert_close(branch.pooled(caught["tokens"]).flatten(0, 1), expected, rtol=1e-5, atol=1e-6)


def test_an_unknown_tower_is_refused_by_name():
    with pytest.raises(InputError, match=r"torch\.nn\.modules\.linear\.Linear"):
        find(nn.Linear(2, 2))


def test_a_timm_tower_that_pools_otherwise_is_refused_by_name():
    timm = pytest.importorskip("timm")
    trunk = timm.models.VisionTransformer(img_size=PATCH, patch_size=PATCH, embed_dim=8, depth=1, num_heads=1)
    with pytest.raises(InputError, match=r"VisionTransformer.* pooling 'token'"):
        find(in_timm_model(trunk))


def aimv2_weights(model):
    layer, vision = model.vision_model.encoder.layers[-1], model.vision_model
    parts = {
        "norm1": layer.rms_norm1, "v": layer.attention.v_proj, "out": layer.attention.out_proj,
        "norm2": layer.rms_norm2, "gate": layer.ffn.gate_proj, "up": layer.ffn.up_proj, "down": layer.ffn.down_proj,
        "norm": vision.rms_norm, "pool_v": vision.head.v_proj, "pool_out": vision.head.output_proj,
        "proj": model.visual_projection,
    }  # fmt: skip
    return {f"{name}_w": part.weight for name, part in parts.items()} | {"pool_out_b": vision.head.output_proj.bias}


@torch.no_grad()
def test_bare_weights_give_what_the_module_gives():
    model = make("aimv2")
    tokens, branch, _ = tokens_and_branch(model, torch.randn(2, 3, PIXELS, PIXELS))
    bare = from_weights("aimv2", {k: np.asarray(v) for k, v in aimv2_weights(model).items()})
    torch.testing.assert_close(bare(tokens.double()).float(), branch(tokens), rtol=1e-5, atol=1e-6)


def test_a_missing_weight_is_named():
    with pytest.raises(InputError, match="'timm-map' needs 'pool_norm_w'"):
        from_weights("timm-map", {"norm1_w": [1.0]})
