"""The published traces as a whole, where they lie beside the checkout."""

from pathlib import Path

import pytest

from tests.paths import SHARED
from workloads.readers import READERS, read_trace
from workloads.summary import TraceSummary, summarise
from workloads.trace import TraceJob

DATA = SHARED / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="needs the published traces beside the checkout")


def _summary(path: str) -> TraceSummary:
    return summarise(read_trace(DATA / path))


@pytest.mark.slow
def test_philly() -> None:
    trace = read_trace(DATA / "traces" / "philly.csv")
    summary = summarise(trace)
    # 82,248 lines, one of them the header.
    assert (summary.num_jobs, summary.num_gpu_jobs) == (82247, 82247)
    sizes = {1: 76627, 2: 1818, 4: 1870, 8: 1643, 12: 7, 16: 199, 24: 7, 32: 67, 64: 6, 128: 3}
    assert {size.num_gpus: size.num_jobs for size in summary.sizes} == sizes
    assert summary.queues["6214e9"] == 41226
    assert trace.origin_s == 1504521041.0  # 2017-09-04 10:30:41, the first submission
    # The column gpu_time agrees.
    assert summary.mean_wanted_gpus == pytest.approx(374.237, abs=1e-3)


@pytest.mark.parametrize(
    ("cluster", "num_jobs", "busy_gpus"),
    [("01", 1595, 28), ("02", 5778, 86), ("05", 3629, 10), ("10", 260, 5)],
)
def test_itp(cluster: str, num_jobs: int, busy_gpus: int) -> None:
    summary = _summary(f"traces/itp/cluster{cluster}.csv")
    assert summary.num_jobs == num_jobs
    assert summary.mean_wanted_gpus == pytest.approx(busy_gpus, abs=0.5)


def test_openb() -> None:
    summary = _summary("traces/openb_pods.csv")
    assert (summary.num_jobs, summary.num_gpu_jobs) == (8152, 8152 - 1088)
    assert summary.states == {"running": 5193, "failed": 1870, "waiting": 897, "completed": 192}
    assert summary.queues == {"LS": 4647, "BE": 3398, "Burstable": 100, "Guaranteed": 7}
    assert summary.num_sharing == 8152 - 1088 - 3986


@pytest.mark.parametrize(("name", "num_jobs"), [("philly", 1938), ("helios", 438), ("pai", 125)])
def test_arena(name: str, num_jobs: int) -> None:
    trace = read_trace(DATA / "arena" / f"trace_{name}.csv")
    assert len(trace.jobs) == num_jobs
    assert {job.gpu_type for job in trace.jobs} == {"a100", "v100", "a40", "a10"}
    assert all(job.iterations and job.deadline_s and job.application for job in trace.jobs)


@pytest.mark.parametrize(
    ("name", "num_jobs"), [("helios/workload-1", 160), ("philly/workload-4", 160), ("newtrace/workload-2", 960)]
)
def test_sia(name: str, num_jobs: int) -> None:
    trace = read_trace(DATA / "sia" / "workloads" / f"{name}.csv")
    assert len(trace.jobs) == num_jobs
    applications = {"cifar10", "bert", "deepspeech2", "yolov3", "imagenet", "ncf", "gpt_pmp"}
    assert {job.application for job in trace.jobs} <= applications


def test_every_file_is_recognised() -> None:
    folders = {"traces/itp": "itp", "sia/workloads/helios": "sia", "sia/workloads/scale": "sia"}
    for folder, format_ in folders.items():
        for path in sorted((DATA / folder).glob("*.csv")):
            first_line = path.read_text().partition("\n")[0]
            assert [name for name, reader in READERS.items() if reader.recognises(first_line)] == [format_]


@pytest.mark.slow
def test_deadlines_of_arena_are_those_of_elasticflow() -> None:
    """What `workloads.generators.deadlines` says of them: tightness 0.5 to 1.5, loosened by 5."""
    durations = {
        job.id: job.duration_s for path in sorted((DATA / "traces" / "itp").glob("*.csv")) for job in _jobs(path)
    }
    jobs = _jobs(DATA / "arena" / "trace_philly.csv")
    tightness = sorted((job.deadline_s or 0.0) / (5 * (durations[job.id] or 1.0)) for job in jobs)
    assert [tightness[0], tightness[-1]] == pytest.approx([0.5, 1.5], abs=1e-3)
    assert tightness[len(tightness) // 2] == pytest.approx(0.983, abs=1e-3)


def _jobs(path: Path) -> tuple[TraceJob, ...]:
    return read_trace(path).jobs
