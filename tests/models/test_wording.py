"""One of something is singular, wherever it is counted; sizes have units that people read."""

import pytest

from models.wording import counted, listed, size_of


@pytest.mark.parametrize(
    ("counts", "noun", "words"),
    [
        ((1,), "GPU", "1 GPU"),
        ((0,), "GPU", "0 GPUs"),
        ((40,), "layer", "40 layers"),
        ((20, 20), "layer", "20+20 layers"),
        ((1, 1), "GPU", "1+1 GPUs"),
        ((1,), "micro-batch", "1 micro-batch"),
        ((8,), "micro-batch", "8 micro-batches"),
        ((1,), "entry", "1 entry"),
        ((3,), "entry", "3 entries"),
    ],
)
def test_words(counts: tuple[int, ...], noun: str, words: str) -> None:
    assert listed(counts, noun) == words
    if len(counts) == 1:
        assert counted(counts[0], noun) == words


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (3_225_771_753_472.0, "3225.8 GB"),
        (72e9, "72.0 GB"),
        (999.97e6, "1.0 GB"),
        (1.5e6, "1.5 MB"),
        (2048, "2.0 kB"),
        (81.0, "81 bytes"),
        (1, "1 byte"),
    ],
)
def test_sizes(num_bytes: float, words: str) -> None:
    assert size_of(num_bytes) == words
