"""Short documents, packed into windows, for tests."""

from pathlib import Path

import numpy as np

from executor.data.indexed import write_indexed
from executor.data.sources import Data, Source

# Behind every document.
END = 0


def packed(folder: Path, **changes: object) -> Data:
    """300 documents of 2 to 40 tokens, of which a sample of 32 has a few; with those that go over its ends."""
    generator = np.random.default_rng(11)
    lengths = generator.integers(1, 40, size=300)
    documents = [
        [*((first + stride * np.arange(length)) % 90 + 1), END]
        for length, first, stride in zip(
            lengths, generator.integers(90, size=300), generator.integers(1, 4, size=300), strict=True
        )
    ]
    write_indexed(folder / "packed", documents, vocabulary_size=96)
    return Data(sources=(Source(path=str(folder / "packed")),), **{"document_mask": True, **changes})  # type: ignore[arg-type]
