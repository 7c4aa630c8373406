"""Answers as flat rows, as `pandas.DataFrame` takes them: `DataFrame(job_records(plan))`."""

from collections.abc import Iterable, Mapping
from typing import Any

from stowplan.client import documents as d
from stowplan.client.events import Event

Row = dict[str, Any]


def flat(document: Mapping[str, Any], **more: Any) -> Row:
    """A document as one row, behind `more`: objects become columns named with dots, lists are left out."""
    row = dict(more)
    for name, value in document.items():
        if isinstance(value, Mapping):
            row |= {f"{name}.{inner}": item for inner, item in flat(value).items()}
        elif not isinstance(value, (list, tuple)):
            row[name] = value
    return row


def job_records(plan: d.PlanDoc) -> list[Row]:
    """A row for each job of a plan: what it gets, or why it gets nothing."""
    placed = [
        flat(
            {name: value for name, value in job.items() if name not in ("gpus", "previous", "parallel_plan", "launch")}
        )
        | {"placed": True, "num_nodes": len(job["gpus"])}
        for job in plan.get("allocations", ())
    ]
    return [
        {"plan_id": plan["id"], "policy": plan["policy"], **row}
        for row in (*placed, *(flat(job, placed=False) for job in plan.get("unplaced", ())))
    ]


def gpu_records(plan: d.PlanDoc) -> list[Row]:
    """A row for each GPU that a job has."""
    return [
        {"plan_id": plan["id"], "job_id": job["job_id"], "node": node, "gpu": gpu, "gpu_type": job["gpu_type"]}
        for job in plan.get("allocations", ())
        for node, gpus in job["gpus"].items()
        for gpu in gpus
    ]


def term_records(plan: d.PlanDoc) -> list[Row]:
    """A row for each term of the objective."""
    return [flat(term, plan_id=plan["id"]) for term in plan.get("score", ())]


def event_records(events: Iterable[Event]) -> list[Row]:
    """A row for each event."""
    return [flat(event.data, id=event.id, event=event.name) for event in events]


def variant_records(answer: d.WhatIfDoc) -> list[Row]:
    """A row for each variant: its plan, what it costs, how many jobs are treated otherwise, and how."""
    rows = []
    for answered in answer["variants"]:
        plan, difference = answered["plan"], answered.get("difference")
        row: Row = {"variant": answered["variant"]["name"], "price": answered.get("price")}
        row |= {"num_forbidden": len(answered.get("forbidden", ()))}
        if plan is not None:
            row |= {"plan_id": plan["id"], "status": plan["status"], "objective": plan.get("objective")}
        if difference is not None:
            row |= {"num_changed": len(difference["jobs"]), "goodput_ratio": difference["goodput_ratio"]}
            row |= {f"num_{change}": number for change, number in difference["num_by_change"].items()}
        rows.append(row)
    return rows


def solver_records(comparison: d.ComparisonDoc) -> list[Row]:
    """A row for each solver of a comparison."""
    return [flat(run, comparison_id=comparison["id"]) for run in comparison.get("runs", ())]


def replay_records(replays: d.ReplayDoc) -> list[Row]:
    """A row for each replay: policy, seed, and its figures."""
    return [flat(run, replays_id=replays["id"]) for run in replays["replays"]]


def point_records(answer: d.ParallelPlanAnswer) -> list[Row]:
    """A row for each number of GPUs that a 3D plan was looked for."""
    return [flat(point) for point in answer["points"]]


def forecast_records(answer: d.ForecastsDoc) -> list[Row]:
    """A row for each job and probability; none for jobs that last longer than anything that was seen."""
    return [
        {"forecaster": answer["forecaster"], "job_id": job["id"], "probability": probability, "seconds": seconds}
        for job in answer["forecasts"]
        if (lasting := job["lasting"]) is not None
        for probability, seconds in zip(lasting["probabilities"], lasting["seconds"], strict=True)
    ]


def entry_records(calendar: d.CalendarDoc) -> list[Row]:
    """A row for each entry of a calendar and each reservation on it."""
    return [
        flat(item, cluster=calendar["name"], kind=kind)
        for kind, items in (("entry", calendar["entries"]), ("reservation", calendar["reservations"]))
        for item in items
    ]


def step_records(steps: Iterable[d.StepSummaryDoc]) -> list[Row]:
    """A row for each measured step."""
    return [flat(step) for step in steps]
