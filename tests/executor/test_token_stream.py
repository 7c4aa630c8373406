"""Data: the same samples whatever the layout, every window of a file once in an epoch."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.data.indexed import write_indexed
from executor.data.sources import Data, Source, TokenType
from executor.token_stream import TokenStream, micro_batch, open_stream, open_validation
from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from stowplan.errors import InputError
from tests.executor.jobs import GPT, tiny_job


def _stream(path: Path, count: int, *, token_type: TokenType = TokenType.UINT16) -> TokenStream:
    """Tokens 0, 1, 2, ... in samples of 4, of which a step has 3."""
    np.arange(count, dtype=np.dtype(token_type.value).newbyteorder("<")).tofile(path)
    model = replace(GPT, sequence_length=4, global_batch=3, vocabulary_size=1000)
    job = TrainingJob(
        model=model,
        stages=(StageLayout(num_layers=4, tp=1, batches=(3,)),),
        num_micro_batches=1,
        num_steps=1,
        seed=1,
        data=Data(sources=(Source(path=str(path), token_type=token_type),)),
    )
    return open_stream(job)


@given(step=st.integers(0, 50), dp=st.sampled_from([1, 2, 4]))
@settings(max_examples=20, deadline=None)
def test_layouts_share_the_same_samples(step: int, dp: int) -> None:
    alone, spread = tiny_job(), tiny_job(dp=dp)
    stream = open_stream(alone)
    whole = stream.batch(8 * step, 8)
    places = [(index, data) for index in range(spread.num_micro_batches) for data in range(dp)]
    parts = [micro_batch(open_stream(spread), spread, first=8 * step, index=i, data=d) for i, d in places]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_synthetic_samples_differ_and_stay_in_the_vocabulary() -> None:
    batch = open_stream(tiny_job()).batch(24, 8)
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


@pytest.mark.parametrize("token_type", TokenType)
def test_epoch_gives_every_window_once_in_another_order(tmp_path: Path, token_type: TokenType) -> None:
    # 25 tokens are 6 windows of 4, which overlap by one: 0..4, 4..8, ..., 20..24.
    stream = _stream(tmp_path / "tokens.bin", 25, token_type=token_type)
    epochs = [[int(stream.sample(6 * e + k)[0]) for k in range(6)] for e in (0, 1)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [0, 4, 8, 12, 16, 20]
    assert epochs[0] != epochs[1]
    np.testing.assert_array_equal(stream.sample(0), np.arange(5) + epochs[0][0])


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
        stream.sample(0)


def _blend(folder: Path, **changes: Any) -> TrainingJob:
    """Two sources that can be told apart: small tokens three times of four, large ones once, in 20 and 10 samples."""
    for name, first, count in (("small", 0, 81), ("large", 500, 41)):
        write_indexed(folder / name, [first + np.arange(count)], vocabulary_size=1000)
    data = {
        "sources": (
            Source(path=str(folder / "small"), weight=3.0),
            Source(path=str(folder / "large"), weight=1.0),
        ),
        **changes,
    }
    model = replace(GPT, sequence_length=4, vocabulary_size=1000)
    return tiny_job(model, data=Data(**data))


def test_blend_has_the_weights_and_all_samples_of_each_source(tmp_path: Path) -> None:
    stream = open_stream(_blend(tmp_path))
    samples = [int(sample[0]) for sample in stream.batch(0, 40)]
    # Of 40 samples 30 and 10: an epoch and a half of the one, an epoch of the other.
    small = [first for first in samples if first < 500]
    assert len(small) == 30
    assert sorted(small[:20]) == list(range(0, 80, 4))
    assert sorted(first for first in samples if first >= 500) == list(range(500, 540, 4))
    # Nobody waits long for either.
    assert all(len({sample >= 500 for sample in samples[k : k + 4]}) == 2 for k in range(37))


def test_validation_is_never_trained_on_and_always_the_same(tmp_path: Path) -> None:
    job = _blend(tmp_path, validation_share=0.2)
    trained = {int(s[0]) for s in open_stream(job).batch(0, 240)}
    validation = open_validation(job)
    assert validation.num_samples == 6
    kept = [int(sample[0]) for sample in validation.batch(0, 8)]
    # The last 4 of 20 samples and the last 2 of 10, at the weights of the blend.
    assert set(kept) == {64, 68, 72, 76, 532, 536}
    assert not trained & set(kept)
    assert len(trained) == 24
    np.testing.assert_array_equal(validation.batch(0, 8), open_validation(job).batch(0, 8))


def _packed(folder: Path, *, end: int | None, indexed: bool) -> TrainingJob:
    """Documents of 3, 2, 4 and 4 tokens, in samples of 4; each ends with a 9."""
    documents = [[1, 2, 9], [3, 9], [4, 5, 6, 9], [7, 8, 1, 9]]
    if indexed:
        write_indexed(folder / "corpus", documents, vocabulary_size=10)
        source = Source(path=str(folder / "corpus"))
    else:
        np.concatenate(documents).astype("<u2").tofile(folder / "corpus.bin")
        source = Source(path=str(folder / "corpus.bin"), token_type=TokenType.UINT16)
    model = replace(GPT, sequence_length=4)
    return tiny_job(model, data=Data(sources=(source,), document_mask=True, eod_token=end))


@pytest.mark.parametrize(("end", "indexed"), [(None, True), (9, True), (9, False)])
def test_documents_begin_where_the_data_say(end: int | None, indexed: bool, tmp_path: Path) -> None:
    stream = open_stream(_packed(tmp_path, end=end, indexed=indexed))
    starts = {tuple(stream.sample(k)): stream.starts(k).astype(int).tolist() for k in range(3)}
    assert starts == {
        (1, 2, 9, 3, 9): [1, 0, 0, 1, 0],
        (9, 4, 5, 6, 9): [1, 1, 0, 0, 0],
        (9, 7, 8, 1, 9): [1, 1, 0, 0, 0],
    }


def test_documents_end_in_both_places_where_the_token_is_another_one(tmp_path: Path) -> None:
    stream = open_stream(_packed(tmp_path, end=8, indexed=True))
    starts = {tuple(stream.sample(k)): stream.starts(k).astype(int).tolist() for k in range(3)}
    assert starts[9, 7, 8, 1, 9] == [1, 1, 0, 1, 0]


def test_data_that_say_nothing_of_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"eod_token.*is missing.*corpus\.bin is a file of tokens"):
        _packed(tmp_path, end=None, indexed=False)
    with pytest.raises(InputError, match=r"corpus\.bin has no token 77 \(eod_token\)"):
        open_stream(_packed(tmp_path, end=77, indexed=False))
    write_indexed(tmp_path / "one", [range(9)], vocabulary_size=10)
    job = tiny_job(replace(GPT, sequence_length=4), data=Data(sources=(Source(path=str(tmp_path / "one")),)))
    assert not open_stream(job).starts(0)[1:].any()
    with pytest.raises(InputError, match=r"one\.idx says that all is one document; give eod_token"):
        open_stream(replace(job, data=replace(job.data, document_mask=True)))


def test_validation_without_samples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"large has 10 samples, of which a share of 0\.05 .* leaves 0 there and 10"):
        open_stream(_blend(tmp_path, validation_share=0.05))
