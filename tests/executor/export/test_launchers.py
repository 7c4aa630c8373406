"""The launchers themselves put ranks where the files say."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.placement.slurm_cluster import missing, slurm_cluster
from executor.export import ExportedJob, export
from executor.launch.local import free_port
from tests.executor.export.jobs import job

pytestmark = pytest.mark.slow
_LIMIT_S = 120
# Host n3 has ranks in pieces, and GPU 1 before GPU 0.
SCATTERED = ExportedJob(name="my job", gpus=(("n3", 1), ("n1", 0), ("n2", 0), ("n2", 1), ("n3", 0)))
SHOW = "echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $WORLD_SIZE $MASTER_ADDR $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME"
EXPECTED = [
    ["0", "0", "2", "5", "n3", "1,0", "n3"],
    ["1", "0", "1", "5", "n3", "0", "n1"],
    ["2", "0", "2", "5", "n3", "0,1", "n2"],
    ["3", "1", "2", "5", "n3", "0,1", "n2"],
    ["4", "1", "2", "5", "n3", "1,0", "n3"],
]


def written(exported: ExportedJob, to: str, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, text in export(exported, [to]).items():
        (folder / name).write_text(text)
    return folder


def lines(text: str) -> list[list[str]]:
    return sorted(line.split() for line in text.splitlines() if line)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[None]:
    if why := missing():
        pytest.skip(why)
    with slurm_cluster(tmp_path / "c") as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield


@pytest.mark.training
@pytest.mark.usefixtures("slurm")
def test_slurm(tmp_path: Path) -> None:
    folder = written(SCATTERED, "slurm", tmp_path / "a folder")
    command = ["sbatch", "--wait", "--quiet", "--output=out", "job.sbatch", "sh", "-c", SHOW]
    subprocess.run(command, cwd=folder, check=True, timeout=_LIMIT_S)
    assert lines((folder / "out").read_text()) == EXPECTED


@pytest.mark.training
@pytest.mark.usefixtures("slurm")
def test_slurm_with_options(tmp_path: Path) -> None:
    even = ExportedJob(name="j", gpus=(("n3", 0), ("n3", 1), ("n1", 0), ("n1", 1)))
    options = {"partition": "all", "account": "llm", "qos": "high", "time": "2:00:00", "gpus": "gres"}
    options["command"] = f"sh -c {shlex.quote(SHOW)}"
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name, text in export(even, ["slurm"], options).items():
        (folder / name).write_text(text)
    said = ["sbatch", "--parsable", "--wait", "--output=out", "job.sbatch"]
    job_id = subprocess.run(said, cwd=folder, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
    assert [line[-1] for line in lines((folder / "out").read_text())] == ["n3", "n3", "n1", "n1"]
    show = ["scontrol", "show", "job", job_id.strip()]
    shown = subprocess.run(show, check=True, capture_output=True, text=True, timeout=_LIMIT_S).stdout
    # A quality of service is known to accounting only, which this Slurm has not: it is taken and not kept.
    for word in ("Account=llm", "Partition=all", "TimeLimit=02:00:00", "TresPerNode=gres:gpu:2"):
        assert word in shown


def test_open_mpi(tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun here (Debian: openmpi-bin)")
    here = "localhost"
    exported = ExportedJob(name="j", gpus=((here, 3), (here, 0), (here, 5)))
    folder = written(exported, "mpi", tmp_path / "a folder")
    show = f"{SHOW}; grep Cpus_allowed_list /proc/self/status"
    allowed = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # More ranks than cores are wanted here only.
    allowed["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    for name in [name for name in allowed if name.startswith("SLURM")]:
        del allowed[name]
    command = ["sh", str(folder / "mpirun.sh"), "sh", "-c", show]
    done = subprocess.run(command, env=allowed, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    assert [line for line in found if line[0].isdecimal()] == [
        [str(k), str(k), "3", "3", here, "3,0,5"] for k in range(3)
    ]
    # No rank is tied to the core that the rankfile has to name.
    (mine,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "Cpus_allowed_list" in line)
    assert [line for line in found if not line[0].isdecimal()] == [mine.split()] * 3


@pytest.mark.training
def test_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[executor]'")
    exported = ExportedJob(name="j", gpus=(("n1", 1), ("n1", 0), ("n2", 0)))
    folder = written(exported, "torchrun", tmp_path / "a folder")
    program = tmp_path / "show.py"
    names = ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "STOWPLAN_HOST"]
    program.write_text(f"import os\nprint(*(os.environ[name] for name in {names}))\n")
    # The nodes come the other way round, and take their ranks all the same.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    common = {**os.environ, "PATH": path, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            ["sh", str(folder / "torchrun.sh"), str(program)],
            env={**common, "STOWPLAN_HOST": host},
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in ("n2", "n1")
    ]
    text = "".join(process.communicate(timeout=_LIMIT_S)[0] for process in processes)
    assert lines(text) == [
        ["0", "0", "2", "3", "1,0", "n1"],
        ["1", "1", "2", "3", "1,0", "n1"],
        ["2", "0", "1", "3", "0", "n2"],
    ]


def test_a_host_that_is_none_of_the_job(tmp_path: Path) -> None:
    folder = written(replace(job(), name="j"), "torchrun", tmp_path / "f")
    command = ["sh", str(folder / "torchrun.sh"), "train.py"]
    environment = {**os.environ, "STOWPLAN_HOST": "elsewhere"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "elsewhere is no host of job j" in done.stderr) == (2, True)
