"""What a transform does decides its digest, and nothing else does."""

import subprocess
import sys
from enum import Enum
from functools import partial

import numpy as np
import pytest
import torch
from torchvision import transforms

from fiood_core.errors import InputError
from fiood_core.fingerprint import behaviour, fingerprint, is_installed


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, picture):
        return picture * self.by


class Kind(Enum):
    A = 1
    B = 2


def chain(mean=0.5, size=224, **options):
    return transforms.Compose(
        [transforms.Resize(size, **options), transforms.ToTensor(), transforms.Normalize([mean] * 3, [0.5] * 3)]
    )


@pytest.mark.parametrize(
    "make",
    [
        chain,
        lambda: Scale(2),
        lambda: transforms.Lambda(lambda x: x + 1),
        lambda: partial(torch.clamp, min=0),
        lambda: {"a": [1, (2.0, None)], "b": {3, "x"}},
        lambda: np.arange(3.0),
        lambda: Kind.A,
        lambda: torch.float32,
    ],
)
def test_equal_content_has_equal_digests(make):
    assert fingerprint(make()) == fingerprint(make())


def with_closure(k):
    return lambda x: x * k


OFFSET = 1


def reads_global(x):
    return x + OFFSET


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (chain(0.5), chain(0.5000001)),
        (chain(), chain(antialias=False)),
        (chain(), chain(interpolation=transforms.InterpolationMode.BICUBIC)),
        (Scale(1), Scale(2)),
        (Scale(1), Scale(True)),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x.cos(), lambda x: x.sin()),
        (with_closure(1), with_closure(2)),
        (partial(torch.clamp, min=0), partial(torch.clamp, min=1)),
        ([1, 2], (1, 2)),
        ([[1], 2], [1, [2]]),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2, 3), torch.ones(3, 2)),
        (np.ones(2), np.zeros(2)),
        (Kind.A, Kind.B),
        ("1", 1),
    ],
)
def test_other_content_has_another_digest(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_a_function_outside_packages_counts_with_the_globals_it_reads(monkeypatch):
    before = fingerprint(reads_global)
    monkeypatch.setitem(globals(), "OFFSET", 2)
    assert fingerprint(reads_global) != before


def test_circles_end():
    loop = [1]
    loop.append(loop)
    other = [1]
    other.append(other)
    assert fingerprint(loop) == fingerprint(other)


def test_what_has_no_content_is_refused(tmp_path):
    with (tmp_path / "x").open("w") as file, pytest.raises(InputError, match="no content"):
        fingerprint(Scale(file))


def test_installed_code_is_known_by_its_name():
    assert is_installed(transforms.Compose)
    assert is_installed(sorted.__class__)
    assert not is_installed(Scale)
    assert not is_installed(lambda: 0)


def test_behaviour_is_that_of_the_methods():
    def of(scale):
        class Net(torch.nn.Module):
            forward = (lambda self, x: x * 2) if scale == 2 else (lambda self, x: x * 3)

        return Net

    assert behaviour([of(2)]) == behaviour([of(2)])
    assert behaviour([of(2)]) != behaviour([of(3)])


SCRIPT = """
from torchvision import transforms
from fiood_core.fingerprint import fingerprint
scale = 3
class Own:
    def __init__(self): self.names = {"a", "b", "c"}
    def __call__(self, x): return x * scale
print(fingerprint([transforms.Compose([transforms.Resize(8), transforms.Lambda(lambda x: x + 1)]), Own()]))
"""


@pytest.mark.slow
def test_the_digest_is_the_same_in_every_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    digests = {
        subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=env).stdout
        for env in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    }
    assert len(digests) == 1
