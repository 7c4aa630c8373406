"""Alerts and the dashboard ask for metrics that the service has, by labels that they have."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.common.metrics import Metrics
from api.schemas.plan import PlanStatus
from executor.change import RunChange
from executor.lifecycle import Cause, Run
from solver.pool import WorkerPool
from tests.paths import ROOT

FOLDER = ROOT / "deploy"
_SELECTOR = re.compile(r"\b(stowplan_[a-z_]+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'([a-z_]+)(=~|=|!=|!~)"([^"]*)"')
# What Prometheus adds to every metric, and what the dashboard asks for.
ADDED = {"instance", "job"}


def expressions() -> Iterator[str]:
    (group,) = yaml.safe_load((FOLDER / "prometheus" / "alerts.yaml").read_text())["groups"]
    yield from (rule["expr"] for rule in group["rules"])
    dashboard = json.loads((FOLDER / "grafana" / "stowplan.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    yield from (one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query")


@cache
def served() -> dict[str, set[str]]:
    """Name of every metric of /metrics, with its labels, as after a request, a plan and a change of plan."""
    pool = WorkerPool(num_workers=1, max_queue=1)
    metrics = Metrics(pool)
    metrics.requests.labels("GET", "/", 200).inc()
    metrics.request_seconds.labels("/").observe(0.1)
    metrics.plans.labels("sia", PlanStatus.FAILED).inc()
    metrics.solve_seconds.labels("sia", "highs").observe(0.1)
    metrics.note_run(
        Run(number=1, plan="", cause=Cause.RECONFIGURED, started_at_s=0.0, change=RunChange.RESCALE, cost_s=1.0)
    )
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_is_served_with_its_labels() -> None:
    asked = [match for text in expressions() for match in _SELECTOR.findall(text)]
    assert len({name for name, _ in asked}) >= 8
    for name, selected in asked:
        assert name in served(), f"{name} is no metric of the service"
        labels = {label for label, _, _ in _LABEL.findall(selected)}
        assert labels <= served()[name] | ADDED, f"{name} has no such label: {labels}"


def test_what_is_summed_by_are_labels() -> None:
    labels = {
        label for text in expressions() for found in re.findall(r"by \(([^)]*)\)", text) for label in found.split(", ")
    }
    assert labels <= {label for found in served().values() for label in found} | ADDED


def test_statuses_are_those_of_plans() -> None:
    wanted = {
        value
        for text in expressions()
        for name, selected in _SELECTOR.findall(text)
        for label, _, value in _LABEL.findall(selected)
        if (name, label) == ("stowplan_plans_total", "status")
    }
    assert wanted
    assert wanted <= set(PlanStatus)


def test_every_metric_of_the_service_is_on_the_dashboard() -> None:
    text = (FOLDER / "grafana" / "stowplan.json").read_text()
    families = {re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in served()}
    assert families
    assert [name for name in sorted(families) if name not in text] == []


def test_panels_do_not_overlap() -> None:
    panels = json.loads((FOLDER / "grafana" / "stowplan.json").read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_alert_says_what_to_do_and_is_tried() -> None:
    (group,) = yaml.safe_load((FOLDER / "prometheus" / "alerts.yaml").read_text())["groups"]
    (tried,) = yaml.safe_load((FOLDER / "prometheus" / "alerts.test.yaml").read_text())["tests"]
    fired = {test["alertname"] for test in tried["alert_rule_test"] if test.get("exp_alerts")}
    assert {rule["alert"] for rule in group["rules"]} == fired
    assert all({"summary", "action"} <= rule["annotations"].keys() for rule in group["rules"])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here (apt install prometheus)")
def test_prometheus_takes_the_rules() -> None:
    for arguments in (["check", "config", "scrape.yaml"], ["test", "rules", "alerts.test.yaml"]):
        done = subprocess.run(["promtool", *arguments], cwd=FOLDER / "prometheus", capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
