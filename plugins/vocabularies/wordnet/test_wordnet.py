import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from fiood_vocabulary_wordnet import WordNetLabels

from fiood_core import wordnet
from fiood_core.errors import DataError, InputError, ParameterError
from fiood_core.testing import check_vocabulary
from fiood_core.vocabulary import VocabularyContext

try:
    LEXICON = wordnet.load()
except DataError as missing:
    pytest.skip(str(missing), allow_module_level=True)

TENCH = VocabularyContext(id_names=("tench", "tabby cat"), id_wnids=("n01440764", "n02123045"))


def embed(labels):
    """Unit vectors at an angle that grows with a label's length."""
    angle = torch.tensor([min(len(label), 60) / 40 for label in labels], dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


CONTEXT = VocabularyContext(("a", "abc"), embed=embed, id_embeddings=embed(["a", "abc"]))


@pytest.mark.parametrize("m", [None, pytest.param(50, marks=pytest.mark.slow)])
def test_it_conforms(m):
    check_vocabulary(WordNetLabels, {"m": m})


def test_all_head_lemmas_are_there_with_their_digest():
    labels = WordNetLabels().labels(TENCH)
    assert len(labels) == 79_403
    assert labels.digest == wordnet.DIGEST == labels.record["digest"]


def test_the_record_counts_id_names_and_their_synonyms():
    record = WordNetLabels().labels(TENCH).record
    assert record["overlap"] == 1  # "tench"; the head of the cat's synset is "tabby"
    assert record["overlap_with_names_or_synonyms"] == 2
    assert WordNetLabels(drop_id_names=True).labels(TENCH).record["overlap"] == 0


def test_mining_keeps_the_farthest_first_and_lists_are_nested():
    many, few = (WordNetLabels(m=m).labels(CONTEXT).names for m in (500, 20))
    assert many[:20] == few
    lengths = [min(len(name), 60) for name in many]
    assert lengths == sorted(lengths, reverse=True)
    longest = [name for name in LEXICON.head_lemmas if len(name) >= 60]
    assert list(many[: len(longest)]) == longest  # equally far labels go by name


def test_per_part_of_speech_the_same_fraction_is_kept():
    names = WordNetLabels(m=1000, per_pos=True).labels(CONTEXT).names
    nouns = set(LEXICON.nouns)
    kept = sum(name in nouns for name in names)
    assert kept == 1000 * len(nouns) // 79_403
    assert len(names) - kept == 1000 * (79_403 - len(nouns)) // 79_403


def test_mining_without_embeddings_is_refused():
    with pytest.raises(InputError, match="text embeddings"):
        WordNetLabels(m=10).labels(TENCH)


@pytest.mark.parametrize("wrong", [{"m": 0}, {"m": 5, "quantile": 1.5}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError):
        WordNetLabels(**wrong)


def test_quantiles_are_numpys():
    from fiood_core.mining import similarity_quantiles

    rng = np.random.default_rng(0)
    labels, names = rng.standard_normal((30, 4)), rng.standard_normal((7, 4))
    expected = np.quantile(labels @ names.T, 0.95, axis=1)
    np.testing.assert_allclose(similarity_quantiles(labels, names), expected, rtol=1e-12)


MEMORY = """
import sys, threading, time
from pathlib import Path
import torch
from fiood_vocabulary_wordnet import WordNetLabels
from fiood_core import text
from fiood_core.vocabulary import VocabularyContext

class Model:
    text_digest = "made up"
    card = type("Card", (), {"title": "made up"})

class Embeddings(text.LabelEmbeddings):
    def _encode(self, labels):
        rows = torch.randn(len(labels), 1536, generator=torch.Generator().manual_seed(len(labels[0])))
        return torch.nn.functional.normalize(rows, dim=1)

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**10

embed = Embeddings(Model(), root=Path(sys.argv[1]))
names = [f"name {i}" for i in range(1000)]
before, peak, done = anonymous(), 0.0, threading.Event()

def watch():
    global peak
    while not done.is_set():
        peak = max(peak, anonymous())
        time.sleep(0.01)

watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
context = VocabularyContext(names, embed=embed, id_embeddings=embed(names))
labels = WordNetLabels(m=5000).labels(context)
done.set()
watcher.join()
assert len(labels) == 5000
print(peak - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
def test_mining_all_labels_at_the_largest_width_stays_within_a_gibibyte(tmp_path):
    for _ in ("embedding and mining", "mining what is kept"):
        done = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path)], capture_output=True, text=True, check=True)
        assert float(done.stdout) < 1024
