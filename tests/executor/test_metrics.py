"""Metrics files: whole lines only, read back as written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from executor.metrics import MetricsWriter, StepMetrics, metrics_path, newest_metrics, read_metrics
from stowplan.errors import InputError
from stowplan.records import to_json

STEP = StepMetrics(
    launch=1_700_000_000_000,
    rank=1,
    step=1,
    pipe=0,
    data=1,
    tensor=0,
    host="node-1",
    started_at_s=1.7e9,
    step_s=0.5,
    forward_s=0.1,
    backward_s=0.2,
    send_s=0.0,
    receive_s=0.05,
    load_s=0.01,
    reduction_s=0.04,
    optimizer_s=0.02,
    num_micro_batches=4,
    tokens=256,
    tokens_per_s=512.0,
    peak_memory_bytes=1 << 30,
    loss=4.5,
    learning_rate=1e-3,
    small_batch=4,
    small_gradient_square=2.0,
    large_batch=8,
    large_gradient_square=1.5,
)


def test_lines_are_read_back(tmp_path: Path) -> None:
    path = metrics_path(tmp_path / "metrics", 1)
    steps = [replace(STEP, step=k) for k in (1, 2, 3)]
    with MetricsWriter(path) as writer:
        writer.write(steps[0])
    with MetricsWriter(path) as writer:
        for step in steps[1:]:
            writer.write(step)
    assert path.name == "metrics-rank1.jsonl"
    assert list(read_metrics(path)) == steps


def test_half_line_is_not_read_and_removed_by_the_next_run(tmp_path: Path) -> None:
    path = metrics_path(tmp_path, 1)
    with MetricsWriter(path) as writer:
        writer.write(STEP)
    with path.open("a") as file:
        file.write(to_json(STEP)[:50])
    assert list(read_metrics(path)) == [STEP]
    with MetricsWriter(path) as writer:
        writer.write(replace(STEP, step=2))
    assert list(read_metrics(path)) == [STEP, replace(STEP, step=2)]


def test_the_newest_lines_are_read_from_the_end(tmp_path: Path) -> None:
    """A line is about 600 bytes long: 17,408 bytes hold more than five of them, and not all."""
    path = metrics_path(tmp_path, 1)
    assert newest_metrics(path, 5) == []
    steps = [replace(STEP, step=k) for k in range(1, 101)]
    with MetricsWriter(path) as writer:
        for step in steps:
            writer.write(step)
    with path.open("a") as file:
        file.write(to_json(STEP)[:50])
    assert newest_metrics(path, 5) == steps[-5:]
    assert newest_metrics(path, 1000) == steps
    path.write_text("step 1\n")
    with pytest.raises(InputError, match="is no JSON"):
        newest_metrics(path, 5)


def test_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics-rank1.jsonl"
    document = json.loads(to_json(STEP)) | {"step": "two"}
    path.write_text(to_json(STEP) + "\n" + json.dumps(document) + "\n")
    lines = read_metrics(path)
    assert next(lines) == STEP
    with pytest.raises(InputError, match="line 2 of") as refused:
        next(lines)
    assert refused.value.issues[0].pointer == "/step"


def test_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics-rank1.jsonl"
    path.write_text("step 1\n")
    with pytest.raises(InputError, match=r"jsonl:1: is no JSON"):
        next(read_metrics(path))


def test_number_that_is_none_is_not_written(tmp_path: Path) -> None:
    with MetricsWriter(tmp_path / "metrics.jsonl") as writer, pytest.raises(ValueError, match="not JSON compliant"):
        writer.write(replace(STEP, loss=float("nan")))
