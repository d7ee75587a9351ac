"""OpenImage-O: 17,632 pictures of OpenImages V3's test set, chosen by hand to be out of distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import github, image_list
from fiood_core.sources import openood


class OpenImageO(ListedDataset):
    """All 17,632 pictures, those that OpenOOD tunes on included (subsets ``openood-test`` and ``openood-val``)."""

    name = "openimage-o"
    source = "openimage-o"
    info = Info(
        title="OpenImage-O",
        summary="17,632 pictures of OpenImages V3's test set without ImageNet-1k objects",
        citation="Wang et al.: ViM: Out-Of-Distribution with Virtual-logit Matching, 2022, arXiv 2203.10807",
        licence="pictures listed as CC BY 2.0 by OpenImages; verify for each picture",
        home="https://github.com/haoqiwang/vim",
        expected_count=17632,
        notes="Of 400 checked by NINCO 368 were clean. OpenOOD tunes on 1,763 of them, 41 of which are in CLEAN-OOD.",
    )
    list_files = (
        github(
            "haoqiwang/vim",
            "datalists/openimage_o.txt",
            "f1ef7273bb91063c87b11f04afdc609cbc04621129abe9966dc2e513a2a86935",
            name="vim_openimage_o.txt",
        ),
        openood("val_openimage_o.txt", "3bb1227701775c3893fedd5268f61a17dbfc15e3ec70ea195e3cc827c6b741d1"),
    )
    archive = Remote(
        "openimage_o.zip",
        kind="zip",
        instructions="Get OpenOOD's openimage_o archive (Google Drive 1VUFXnB_z70uHfdgJG2E_pjYOcEgqM7tE), or the "
        "pictures named by the list from OpenImages V3's test set.",
    )
    folder = "images"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        tuned_on = {path.rpartition("/")[2] for path, _ in image_list(lists["openood_v1.5/val_openimage_o.txt"])}
        names = lists["vim_openimage_o.txt"].read_text("ascii").split()
        return [Entry(f"images/{n}", subsets=("openood-val" if n in tuned_on else "openood-test",)) for n in names]
