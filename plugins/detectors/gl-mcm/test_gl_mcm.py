import numpy as np
import pytest
import torch
from fiood_detector_gl_mcm import GLMCM, LocalMaximum, log_local_maximum
from torch import nn

import fiood_core as fiood
from fiood_core.backbone import Outputs
from fiood_core.column import ImageBatch
from fiood_core.errors import InputError, ParameterError
from fiood_core.testing import check_detector
from fiood_core.testing.networks import small_backbone


def unit(*shape, seed):
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return nn.functional.normalize(rows, dim=-1)


class Tower(fiood.VisionLanguageBackbone):
    """A small random open_clip tower as a backbone."""

    card = fiood.Card("tower")
    transform = staticmethod(lambda picture: picture)
    weights_digest = text_digest = "random"

    def __init__(self, head):
        transformer = pytest.importorskip("open_clip.transformer")
        torch.manual_seed(0)
        self.visual = transformer.VisionTransformer(
            image_size=32, patch_size=16, width=16, layers=2, heads=2, mlp_ratio=2.0, output_dim=8
        ).eval()
        self.set_classes(head)

    def load(self, device="cpu"):
        self.visual.to(device)

    @property
    def module(self):
        return self.visual

    def forward(self, images):
        features = nn.functional.normalize(self.visual(images), dim=-1)
        return Outputs(features, self.head(features))

    def encode_text(self, texts):
        return unit(len(texts), 8, seed=1)


@torch.no_grad()
def column_of(detector, backbone, images):
    (column,) = detector.columns
    batch = ImageBatch(images, *backbone.forward(images))
    with column.watch(backbone, batch.captured):
        backbone.forward(images)
    return column, column.compute(batch, backbone, backbone.head)


def test_it_conforms():
    check_detector(GLMCM)


@pytest.mark.parametrize("local", ["block+pool", "pool"])
def test_score_adds_the_best_patch_of_one_forward_pass(local):
    head = fiood.Head(unit(5, 8, seed=0), temperature=0.1)
    backbone, detector = Tower(head), GLMCM(weight=0.5, local=local, precision="float64")
    images = torch.randn(3, 3, 32, 32)
    column, values = column_of(detector, backbone, images)
    tokens = []
    with backbone.value_branch.block.register_forward_hook(lambda _module, args, out: tokens.extend((args[0], out))):
        features = backbone.forward(images).features.detach()
    branch = backbone.value_branch
    patches = branch(tokens[0]) if local == "block+pool" else branch.pooled(tokens[1])
    expected = torch.softmax(head(features.double()), 1).amax(1)
    expected = expected + 0.5 * torch.softmax(head(patches.detach().double()), 2).amax(dim=(1, 2))
    scores = detector.score(fiood.FeatureSet(features=features, head=head, columns={column.key: values}))
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-5)


def test_local_maximum_is_a_maximum_of_softmaxes_streamed_over_patches():
    head, patches = fiood.Head(unit(5, 8, seed=0).double(), temperature=0.01), unit(90, 100, 8, seed=2).double()
    expected = torch.softmax(head(patches), dim=2).amax(dim=(1, 2))
    torch.testing.assert_close(log_local_maximum(patches, head).exp(), expected, rtol=1e-12, atol=0)


def test_without_weight_it_is_maximum_concept_matching():
    logits = np.log([[0.7, 0.2, 0.1]])
    columns = {LocalMaximum().key: np.array([-0.5])}
    scores = GLMCM(weight=0.0, precision="float64").score(fiood.FeatureSet(logits=logits, columns=columns))
    np.testing.assert_allclose(scores, [0.7], rtol=1e-13)


def test_a_classifier_has_no_patches_in_the_joint_space():
    with pytest.raises(InputError, match="gl-mcm needs a vision-language model"):
        LocalMaximum().watch(small_backbone(), {})


def test_a_negative_weight_is_refused():
    with pytest.raises(ParameterError, match="weight"):
        GLMCM(weight=-0.5)
