"""Data: the same samples whatever the layout, every window of a file once in an epoch."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.token_stream import FileStream, micro_batch, open_stream
from executor.training_job import TokenType
from stowplan.errors import InputError
from tests.executor.jobs import GPT, tiny_job


def _stream(path: Path, count: int, *, dtype: str = "uint16", length: int = 4, batch: int = 3) -> FileStream:
    np.arange(count, dtype=np.dtype(dtype).newbyteorder("<")).tofile(path)
    return FileStream(path, dtype=dtype, seed=1, vocabulary_size=1000, sequence_length=length, global_batch=batch)


@given(step=st.integers(0, 50), dp=st.sampled_from([1, 2, 4]))
@settings(max_examples=20, deadline=None)
def test_layouts_share_the_same_samples(step: int, dp: int) -> None:
    alone, spread = tiny_job(), tiny_job(dp=dp)
    stream = open_stream(alone)
    whole = stream.batch(step, 0, 8)
    places = [(index, data) for index in range(spread.num_micro_batches) for data in range(dp)]
    parts = [micro_batch(open_stream(spread), spread, step=step, index=i, data=d) for i, d in places]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_synthetic_samples_differ_and_stay_in_the_vocabulary() -> None:
    batch = open_stream(tiny_job()).batch(3, 0, 8)
    assert batch.shape == (8, GPT.sequence_length + 1)
    assert len({tuple(sample) for sample in batch}) == 8
    assert batch.min() >= 0
    assert batch.max() < GPT.vocabulary_size


def test_synthetic_data_are_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_stream(tiny_job())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith("SYNTHETIC DATA")
    np.zeros(1000, dtype=np.uint16).tofile(tmp_path / "tokens")
    open_stream(tiny_job(token_file=str(tmp_path / "tokens")))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_epoch_gives_every_window_once_in_another_order(tmp_path: Path, dtype: str) -> None:
    # 25 tokens are 6 windows of 4, which overlap by one: 0..4, 4..8, ..., 20..24. Two steps of 3 are an epoch.
    stream = _stream(tmp_path / "tokens.bin", 25, dtype=dtype)
    epochs = [[int(stream.sample(step, k)[0]) for step in (2 * e, 2 * e + 1) for k in range(3)] for e in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [0, 4, 8, 12, 16, 20]
    assert epochs[0] != epochs[1]
    np.testing.assert_array_equal(stream.sample(0, 0), np.arange(5) + epochs[0][0])


def test_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 4 tokens; one sample needs 5"):
        _stream(tmp_path / "tokens.bin", 4)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.bin cannot be read"):
        open_stream(tiny_job(token_file=str(tmp_path / "nothing.bin")))


def test_token_outside_the_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    np.full(66, GPT.vocabulary_size, dtype=np.uint32).tofile(path)
    stream = open_stream(tiny_job(token_file=str(path), token_type=TokenType.UINT32))
    with pytest.raises(InputError, match=r"has the token 101 .* the vocabulary of the model has 101"):
        stream.sample(0, 0)
