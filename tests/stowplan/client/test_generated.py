"""A client that a public generator makes of our OpenAPI document, as people do who have a language or habits of their
own: it understands the whole document, and against the running service it says what ours says.
"""

import subprocess
import sys
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest

from api.common.examples import example
from api.openapi import PATH
from stowplan.client import Client, ProblemError
from stowplan.client import documents as d
from tests.api.requests import changed
from tests.api.serving import NO_CERTIFICATES

NAME = "generated_client"
LIMIT_S = 60.0
# Nobody reads what is made here, so that it need not be formatted. Pictures have no schema, as OpenAPI 3.1 wants it:
# the generator must be told that they are bytes.
CONFIG = """\
post_hooks: []
content_type_overrides:
  image/svg+xml: application/octet-stream
  image/png: application/octet-stream
"""


def generate(folder: Path) -> None:
    """Generate the package `NAME` in a folder; whatever the generator cannot make sense of is a failure."""
    config = folder / "config.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    told = [f"--path={PATH}", f"--config={config}", f"--output-path={folder / NAME}", "--meta=none"]
    command = [sys.executable, "-m", "openapi_python_client", "generate", *told, "--fail-on-warning"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def comparable(plan: Any) -> dict[str, Any]:
    return {**plan, "times": {name: datetime.fromisoformat(text) for name, text in plan["times"].items()}}


def test_a_generated_client_is_told_what_ours_is(
    url: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    models = import_module(f"{NAME}.models")
    plans: Any = {
        name: import_module(f"{NAME}.api.plans.{name}").sync for name in ("create_plan", "get_plan", "list_plans")
    }
    request = example("quickstart").request
    with import_module(f"{NAME}.client").Client(base_url=url, verify_ssl=NO_CERTIFICATES, timeout=90.0) as theirs:
        created = plans["create_plan"](client=theirs, body=models.SiaPlanBody.from_dict(request))
        assert isinstance(created, models.PlanDoc)
        plan = plans["get_plan"](created.id, client=theirs, prefer="wait=50")
        assert plan.status is models.PlanStatus.SUCCEEDED
        ours = client.plans.get(plan.id)
        # Times are objects to it, which it writes in another way.
        assert plan.times.queued.utcoffset() == timedelta(0)
        assert comparable(plan.to_dict()) == comparable(ours)
        # The same question to ours has the same answer, another plan.
        again = client.plans.solve(cast("d.PlanBody", request), timeout_s=120)
        assert again["id"] != plan.id
        assert again["allocations"] == ours["allocations"]
        listed = [found.id for found in plans["list_plans"](client=theirs).plans]
        assert [name for name in listed if name in (again["id"], plan.id)] == [again["id"], plan.id]

        wrong = changed(request, "/snapshot/cluster/nodes/1/gpu_type", "b")
        problem = plans["create_plan"](client=theirs, body=models.SiaPlanBody.from_dict(wrong))
        assert isinstance(problem, models.ProblemDoc)
        with pytest.raises(ProblemError) as found:
            client.plans.create(cast("d.PlanBody", wrong))
        assert (problem.status, problem.code) == (found.value.status, found.value.code) == (422, "invalid_input")
        assert problem.errors[0].pointer == found.value.pointer == "/snapshot/cluster/nodes/1/gpu_type"
