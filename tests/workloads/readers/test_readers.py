"""What holds for every reader in the registry: found by the first line, refuses what is no text, costs its size."""

import gc
import json
import random
from pathlib import Path

import pytest

from stowplan.errors import FileFormatError, InputError
from tests.growth import work
from tests.workloads.jobs import jobs_of
from tests.workloads.readers.slurm_samples import STEPS, document, record
from tests.workloads.readers.test_layouts import TABLES
from tests.workloads.readers.test_swf import SAMPLE
from workloads.readers import READERS, detect, read_trace
from workloads.writer import csv_text

SAMPLES = TABLES | {
    "csv": csv_text(jobs_of((0.0, 1, None))),
    "sacct": STEPS,
    "sacct-json": json.dumps(document(record(1, "ok", "COMPLETED", 1795363924, 3))),
    "swf": SAMPLE,
}


def test_there_is_a_sample_of_every_format() -> None:
    assert set(SAMPLES) == set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_a_format_is_told_from_its_first_line(tmp_path: Path, name: str) -> None:
    assert detect(SAMPLES[name], "file") == name
    assert detect("\n  \n" + SAMPLES[name], "file") == name
    path = tmp_path / "some.trace"
    path.write_text("\ufeff" + SAMPLES[name], encoding="utf-8")
    trace = read_trace(path)
    assert trace.name == "some"
    assert trace == read_trace(path, format_=name)
    assert read_trace(path, name="called").name == "called"


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileFormatError, match=r"none: cannot be read: No such file or directory"):
        read_trace(tmp_path / "none", format_=name)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="is not UTF-8"):
        read_trace(tmp_path / "binary", format_=name)


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_another_format_is_refused(name: str) -> None:
    for other, text in SAMPLES.items():
        if other != name:
            with pytest.raises(FileFormatError, match=r"^file"):
                READERS[name](text, "file", "t")


@pytest.mark.parametrize("name", READERS)
def test_garbage_is_refused_with_its_place_or_read(name: str) -> None:
    rng = random.Random(name)  # noqa: S311 - reproducible, no secret
    for _ in range(60):
        text = list(SAMPLES[name])
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.choice("0-.,|\"'\n;x{}eé\t ")
        try:
            READERS[name]("".join(text), "file", "t")
        except FileFormatError as error:
            assert str(error).startswith("file")  # noqa: PT017 - some garbage is a legal file
    assert gc.isenabled()


def test_what_is_no_trace_is_told_what_would_be() -> None:
    with pytest.raises(FileFormatError, match=r"file:1: begins as no known format: 'a,b'.*or say what the columns"):
        detect("a,b\n1,2\n", "file")
    both = "timestamp,duration,num_gpus,cluster,job_id,submission_time,num_gpu\n"
    with pytest.raises(FileFormatError, match=r"begins as several formats: .* Name one of philly, itp"):
        detect(both, "file")


def test_formats_and_columns_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("t,n\n5,1\n")
    assert read_trace(path, columns="submit=t,gpus=n").jobs[0].submit_s == 5.0
    with pytest.raises(InputError, match="there is no format 'excel' of traces; the formats are csv, sacct"):
        read_trace(path, format_="excel")
    with pytest.raises(InputError, match="columns can be named for csv; those of sia are known"):
        read_trace(path, format_="sia", columns="submit=t,gpus=n")


def _many(name: str, num_jobs: int) -> str:
    """A file of so many jobs."""
    if name == "sacct-json":
        return json.dumps(document(*(record(k, "ok", "COMPLETED", 1795363924, 3) for k in range(1, num_jobs + 1))))
    lines = SAMPLES[name].splitlines()
    if name == "swf":
        return "\n".join(f"{k} {lines[4].split(maxsplit=1)[1]}" for k in range(num_jobs))
    separator = "|" if name == "sacct" else ","
    header, first = lines[0], lines[1].split(separator)
    rows = [separator.join([str(k), *first[1:]]) for k in range(num_jobs)]
    if name == "philly":
        rows = [separator.join(first)] * num_jobs
    return "\n".join([header, *rows])


@pytest.mark.parametrize("name", READERS)
def test_reading_grows_with_the_size(name: str) -> None:
    def cost(num_jobs: int) -> int:
        text = _many(name, num_jobs)
        return work(lambda: READERS[name](text, "file", "t"))

    assert cost(200) <= 2.3 * cost(100)


@pytest.mark.parametrize("name", ["sacct", "itp", "pai"])
def test_the_first_fault_is_found_in_time_that_grows_with_the_size(name: str) -> None:
    def cost(num_jobs: int) -> int:
        text = _many(name, num_jobs) + "\nnonsense"

        def read() -> None:
            with pytest.raises(FileFormatError, match=f"file:{num_jobs + 2}: has 1 cells"):
                READERS[name](text, "file", "t")

        return work(read)

    assert cost(200) <= 2.3 * cost(100)
