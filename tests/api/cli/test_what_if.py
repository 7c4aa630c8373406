"""`stowplan what-if`: variants side by side, why not there, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from api.cli.exit_codes import ExitCode
from api.cli.files import PlanFile, load_request
from api.cli.main import app
from api.cli.what_if import LocalWhatIfDoc, checked_variants
from stowplan.errors import InputError
from tests.api.requests import sia_request, table_job

slow = pytest.mark.slow


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["what-if", *(str(argument) for argument in arguments)])


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(sia_request([table_job("j0"), table_job("small", max_gpus=1)])))
    return path


@pytest.fixture
def asked(request_file: Path) -> PlanFile:
    return load_request(request_file)


@slow
def test_tables_json_and_picture(request_file: Path, tmp_path: Path) -> None:
    variants = tmp_path / "variants.json"
    several = [
        {"name": "small there", "place": {"job": "small", "nodes": {"n1": [0, 1]}}},
        {"name": "gang", "policy": "gang"},
    ]
    variants.write_text(json.dumps(several))
    figure, written = tmp_path / "difference.png", tmp_path / "answer.json"
    result = run(request_file, "--drain", "pod1", "--variants", variants, "--figure", figure, "-o", written)
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert figure.read_bytes().startswith(b"\x89PNG")
    answer = LocalWhatIfDoc.model_validate_json(written.read_text())
    assert [row.variant.name for row in answer.variants] == ["drain pod1", "small there", "gang"]
    assert answer.variants[0].difference is not None
    assert {node for job in answer.variants[0].plan.allocations for node in job.gpus} == {"n0"}  # type: ignore[union-attr]
    assert answer.variants[1].plan is None
    output = result.output
    assert "status" in output
    assert "rules forbid 'small' there" in output
    assert "job 'small' takes at most 1 GPU, not 2" in output
    assert "the objectives of sia and gang measure different things" in output
    assert run(request_file, "--drain", "pod1", "--json").output.startswith('{\n  "base": {')


def test_options_make_one_variant(asked: PlanFile) -> None:
    settings = ["jobs/j0/priority=1", 'jobs/small/gpu_types=["a"]', "policy=gang", "parameters/order=priority"]
    (checked,) = checked_variants(asked, {"down": ["n0"], "remove_jobs": ["small"]}, settings[:1] + settings[2:], None)
    document = checked.document
    assert document.name == "down n0; remove jobs small; jobs/j0/priority=1; policy=gang; parameters/order=priority"
    assert (document.down, document.remove_jobs, document.policy) == (("n0",), ("small",), "gang")
    assert document.parameters == {"order": "priority"}
    assert checked.request is not None
    assert [(job.id, job.priority) for job in checked.request.snapshot.jobs] == [("j0", 1)]
    (checked,) = checked_variants(asked, {}, settings[1:2], None)
    assert checked.document.jobs == {"small": {"gpu_types": ["a"]}}


@pytest.mark.parametrize(
    ("own", "settings", "words"),
    [
        ({}, [], "names no change"),
        ({}, ["priority"], "must be PATH=VALUE"),
        ({}, ["jobs/j0=1", "jobs/j0/priority=2"], "'j0' has no fields"),
        ({"drain": ["n9"]}, [], "the variant has 1 error"),
        ({}, ["name=x", "jbos/j0/priority=1"], "1 error"),
    ],
)
def test_what_is_wrong_is_said(asked: PlanFile, own: dict[str, Any], settings: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        checked_variants(asked, own, settings, None)


def test_a_file_that_lists_nothing(asked: PlanFile, tmp_path: Path) -> None:
    path = tmp_path / "variants.json"
    path.write_text('"drain"')
    with pytest.raises(InputError, match="must be a list of variants"):
        checked_variants(asked, {}, [], path)
