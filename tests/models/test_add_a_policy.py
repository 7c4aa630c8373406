"""The recipe for a policy, followed literally in a copy of the tree: its folder, its document, a line in each table."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.models.first_fit.recipe import LINES, NEW_FILES

ROOT = Path(__file__).parents[2]
# Reads the policies as the service does, and plans as its workers do.
PROBE = """
import json, sys
from api.common.settings import Settings
from api.convert.request import check_request
from api.convert.snapshot import snapshot_from_document
from api.plans.policies import POLICIES
from api.schemas.comparison import ComparisonBody
from api.schemas.request import PLAN_BODY
from models.planning import plan

assert "first-fit" in [policy.name for policy in POLICIES.policies]
text = sys.stdin.read()
body = PLAN_BODY.validate_json(text)
ComparisonBody.model_validate_json(json.dumps({**json.loads(text), "solvers": ["highs"]}))
request = check_request(body, snapshot_from_document(body.snapshot), Settings()).required()
outcome = plan(request)
print(request.policy, outcome.termination, [a.job_id for a in outcome.plan.allocations])
"""


def linked(scratch: Path, folder: Path) -> None:
    """Make `folder` of the copy a folder of links into the tree, so that files can be added and changed there."""
    parts = [*reversed(folder.parents), folder]
    for part in parts:
        here = scratch / part
        if here.is_symlink():
            here.unlink()
        if not here.is_dir():
            here.mkdir(parents=True)
        for entry in (ROOT / part).iterdir():
            if entry.name[0] != "." and entry.name != "__pycache__" and not (here / entry.name).exists():
                (here / entry.name).symlink_to(entry)


def test_a_policy_is_its_folder_its_document_and_a_line_in_each_table(tmp_path: Path) -> None:
    for folder in ("models/allocation", "api/schemas/policies"):
        linked(tmp_path, Path(folder))
    for name, text in NEW_FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, lines in LINES.items():
        text = (ROOT / name).read_text()
        for before, line in lines:
            assert text.count(before) == 1
            text = text.replace(before, before + line)
        (tmp_path / name).unlink()
        (tmp_path / name).write_text(text)
    facts = {"memory_bytes": 1, "peak_flops_per_s": 1.0}
    facts |= {"intra_node_bandwidth_bytes_per_s": 1.0, "inter_node_bandwidth_bytes_per_s": 1.0}
    cluster = {"gpu_types": [{"name": "a", **facts}], "nodes": [{"id": "n", "gpu_type": "a", "num_gpus": 4}]}
    jobs = [{"id": "small", "min_gpus": 2}, {"id": "large", "min_gpus": 4}]
    request = {"policy": "first-fit", "snapshot": {"cluster": cluster, "jobs": jobs}}
    request |= {"parameters": {"largest_first": True}}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "first-fit optimal ['large']\n", done.stderr
