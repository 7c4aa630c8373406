"""`stowplan applications`: what it writes is what POST /v1/replays takes, and replays as the folder does."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

from api.cli.clusters import cluster_of
from api.cli.exit_codes import ExitCode
from api.cli.main import app
from api.convert.application import profiles_from_documents
from api.convert.reading import read_document
from api.schemas.application import ApplicationDoc
from benchmarks.paths import PUBLISHED
from executor.simulation.replay import Replay
from stowplan.records import to_document
from tests.api.replay_requests import measured_request, setups_of
from tests.workloads.profiles import profiles, write_profiles
from topology.serialize import cluster_to_json
from workloads.profiles import ApplicationProfile, read_profiles
from workloads.readers import read_trace

_DOCUMENT: TypeAdapter[ApplicationDoc] = TypeAdapter(ApplicationDoc)
_PUBLISHED = PUBLISHED / "sia/profiles"
# Two jobs of the application, and one that asks for another batch.
_TRACE = "name,time,application,num_replicas,batch_size\nx,0,m,2,20\ny,30,m,1,10\nz,40,m,4,40\n"
_CLUSTER = "a=h100:2x4,b=v100:1x4"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def read(text: str) -> tuple[ApplicationProfile, ...]:
    return profiles_from_documents([read_document(_DOCUMENT, json.dumps(one).encode()) for one in json.loads(text)])


def test_what_it_writes_is_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    expected = profiles(tmp_path / "folder")
    result = run("applications", tmp_path / "folder")
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert read(result.stdout) == expected
    output = tmp_path / "out" / "applications.json"
    assert run("applications", tmp_path / "folder", "--only", "m", "--gpu-types", "a", "-o", output).stdout == ""
    assert read(output.read_text()) == expected
    nothing = run("applications", tmp_path)
    assert (nothing.exit_code, "APPLICATION/placements-TYPE.csv" in nothing.stderr) == (ExitCode.BAD_INPUT, True)


def test_it_replays_as_the_folder_does(tmp_path: Path) -> None:
    """Sia, whose jobs learn, and gang, from the command line and from a request."""
    (tmp_path / "folder").mkdir()
    folder, trace = write_profiles(tmp_path / "folder"), tmp_path / "three.csv"
    trace.write_text(_TRACE)
    chosen = ("--cluster", _CLUSTER, "--policies", "sia,gang", "--round", 60, "--settle", "--restart-delay", 5)
    result = run("replay", trace, *chosen, "--performance", folder, "--shared", "--processes", 1, "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    fields = ("id", "submit_s", "num_gpus", "application", "global_batch")
    jobs = [{name: getattr(job, name) for name in fields} for job in read_trace(trace).jobs]
    request = measured_request(
        cluster=cluster_to_json(cluster_of(_CLUSTER)),
        trace={"name": "three", "jobs": jobs},
        applications=json.loads(run("applications", folder).stdout),
        round_s=60,
        settle=True,
        shared_models=True,
    )
    here = [to_document(Replay(setup).run()) for setup in setups_of(request)]
    there = json.loads(result.stdout)["replays"]
    assert [replay["jobs"] for replay in here] == [replay["jobs"] for replay in there]
    assert [replay["num_finished"] for replay in here] == [3, 3]


@pytest.mark.slow
@pytest.mark.skipif(not _PUBLISHED.is_dir(), reason="the published data is not there")
def test_published_applications_are_taken() -> None:
    names = ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    result = run("applications", _PUBLISHED, *(part for name in names for part in ("--only", name)))
    assert result.exit_code == ExitCode.PLANNED, result.output
    types = ["aws", "azure", "dgx", "dgx-ext", "quad", "rtx"]
    assert read(result.stdout) == read_profiles(_PUBLISHED, names, types)
