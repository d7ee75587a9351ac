"""Species: the 10,000 pictures that OpenOOD v1 took from Hendrycks' Species."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import github, image_list


class Species(ListedDataset):
    """The only published subset of 10,000; its files are renumbered, so the species are lost."""

    name = "species"
    source = "species-sub"
    info = Info(
        title="Species",
        summary="10,000 pictures of fungi, plants, fish, insects and others, renumbered",
        citation="Hendrycks et al.: Scaling Out-of-Distribution Detection for Real-World Settings, 2022, "
        "arXiv 1911.11132",
        home="https://github.com/hendrycks/anomaly-seg",
        expected_count=10000,
        notes="Of 400 pictures of the full set checked by NINCO 172 were clean.",
    )
    list_files = (
        github(
            "hungdv1107/OpenOOD",
            "data/benchmark_imglist/imagenet/test_species.txt",
            "e8270524fa60219abc7f655a8303a8bfcbd9d0675a7c60f91b770af7475f605b",
            commit="d5b379ff4230eaa9d51f9fb1a56c60407f9ee017",
            name="openood_v1_test_species.txt",
        ),
    )
    archive = Remote(
        "species_sub.zip",
        kind="zip",
        instructions="Get OpenOOD v1's species_sub archive (Google Drive 1-JCxDx__iFMExkYRMylnGJYTPvyuX6aq).",
    )
    folder = "species_sub"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        return [Entry(path) for path, _ in image_list(lists["openood_v1_test_species.txt"])]
