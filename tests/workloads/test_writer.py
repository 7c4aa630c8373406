from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from stowplan.errors import InputError
from tests.workloads.jobs import jobs_of, traces
from workloads.readers import detect, read_trace
from workloads.readers.csv import read_csv
from workloads.trace import Trace
from workloads.writer import csv_text, write_csv


@settings(max_examples=20)
@given(traces())
def test_what_is_written_is_read_again(trace: Trace) -> None:
    text = csv_text(trace)
    assert read_csv(text, "t.csv", trace.name) == trace
    assert detect(text, "t.csv") == "csv"


def test_columns_that_say_nothing_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    trace = jobs_of((0.5, 4, None), (1.0, 2, 60.0))
    write_csv(trace, path)
    assert path.read_bytes() == b"id,submit_s,num_gpus,duration_s\r\na,0.5,4,\r\nb,1.0,2,60.0\r\n"
    assert read_trace(path) == trace
    write_csv(replace(trace, origin_s=1e9), path)
    assert path.read_text().splitlines()[1] == "a,0.5,4,,1000000000.0"


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none/t.csv: cannot be written"):
        write_csv(jobs_of((0.0, 1, None)), tmp_path / "none" / "t.csv")
