"""The closed loop on this machine: plan, deploy on CPU ranks, measure, calibrate, plan again, reconfigure.

    python -m benchmarks closed-loop [--output out/loop]          (make demo-loop)

A service starts, and gets a cluster of four hosts in two leaves and a small job. Three plans are deployed to calibrate
with, then seven others: for each the measured step time stands beside the one predicted from stated peaks, and the one
predicted with the coefficients of the first three. Then the job runs on one rank, is planned anew on two with the
calibrated model, and moves to that plan while it trains: the loss goes on where it was.

A rank computes with one thread, and ranks never outnumber processors: the model knows nothing of shared ones.
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.rows import command_line
from benchmarks.service.process import Service, running_service
from executor.extra import missing_extra

JOB: dict[str, Any] = {
    "num_layers": 6,
    "hidden_size": 256,
    "num_heads": 4,
    "vocabulary_size": 1024,
    "sequence_length": 128,
    "global_batch": 16,
    "precision": "fp32",
}
# What somebody would write down for one core of this kind without measuring it.
_CPU = {
    "name": "cpu",
    "memory_bytes": 4 * 2**30,
    "peak_flops_per_s": 6e10,
    "intra_node_bandwidth_bytes_per_s": 4e9,
    "inter_node_bandwidth_bytes_per_s": 2e9,
}
CLUSTER: dict[str, Any] = {
    "gpu_types": [_CPU],
    "tiers": [{"name": "leaf"}],
    "nodes": [{"id": f"host-{k}", "gpu_type": "cpu", "num_gpus": 2, "path": [f"leaf-{k // 2}"]} for k in range(4)],
}
_STEPS, _SETTLED = 16, 4
_LONG_STEPS, _MOVE_AT = 60, 20
_LIMIT_S = 600.0
_POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A symmetric plan to be run; `layers` None: spread evenly."""

    pp: int
    dp: int
    tp: int
    num_micro_batches: int
    layers: tuple[int, ...] | None = None


CALIBRATING = (
    Trial(pp=1, dp=1, tp=1, num_micro_batches=4),
    Trial(pp=1, dp=2, tp=1, num_micro_batches=2),
    Trial(pp=2, dp=1, tp=1, num_micro_batches=4),
)
HELD_OUT = (
    Trial(pp=1, dp=1, tp=1, num_micro_batches=2),
    Trial(pp=1, dp=1, tp=1, num_micro_batches=8),
    Trial(pp=1, dp=2, tp=1, num_micro_batches=1),
    Trial(pp=1, dp=2, tp=1, num_micro_batches=4),
    Trial(pp=2, dp=1, tp=1, num_micro_batches=2),
    Trial(pp=2, dp=1, tp=1, num_micro_batches=8),
    Trial(pp=2, dp=1, tp=1, num_micro_batches=8, layers=(4, 2)),
    Trial(pp=1, dp=1, tp=2, num_micro_batches=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Step times in seconds of one plan: measured, predicted without and with calibration."""

    notation: str
    calibrating: bool
    measured_s: float
    white_box_s: float
    calibrated_s: float

    @property
    def white_box_error(self) -> float:
        """Relative error without calibration."""
        return abs(self.white_box_s / self.measured_s - 1.0)

    @property
    def calibrated_error(self) -> float:
        """Relative error with calibration."""
        return abs(self.calibrated_s / self.measured_s - 1.0)


class Loop:
    """One service, one job after another; `say` prints a line."""

    def __init__(self, service: Service, say: Callable[[str], None]) -> None:
        self._service = service
        self._say = say
        self._calibration: Any = None

    def errors(self) -> list[Result]:
        """Run all trials; the first ones calibrate."""
        results, measured = [], {}
        for trial in CALIBRATING:
            measured[trial] = self._measure(trial)
        self._calibration = self._get("/v1/jobs/loop/performance")["calibration"]
        for trial in HELD_OUT:
            measured[trial] = self._measure(trial)
        for trial, time_s in measured.items():
            before, after = self._predicted(trial, None), self._predicted(trial, self._calibration)
            results.append(
                Result(
                    notation=before["notation"],
                    calibrating=trial in CALIBRATING,
                    measured_s=time_s,
                    white_box_s=before["iteration_s"],
                    calibrated_s=after["iteration_s"],
                )
            )
        return results

    def change(self) -> dict[str, Any]:
        """Start on one rank, plan anew on two with what was measured, and move there."""
        start = self._predicted(CALIBRATING[0], self._calibration)
        path = self._deploy("loop", start["plan"], _LONG_STEPS)
        self._until(path, lambda document: document["step"] >= _MOVE_AT)
        request = {
            "job": JOB,
            "cluster": CLUSTER,
            "gpus": [{"gpu_type": "cpu", "counts": [2]}],
            "calibration": self._calibration,
        }
        best = self._post("/v1/parallel-plans", request)["best"]
        self._say(f"planned anew on two ranks: {best['notation']}, {best['iteration_s'] * 1e3:.0f} ms a step predicted")
        self._post(f"{path}:reconfigure", {"plan": best["plan"], "cluster": CLUSTER})
        done = self._until(path, lambda document: document["phase"] in ("finished", "failed", "stopped"))
        if done["phase"] != "finished" or len(done["runs"]) != 2:
            raise RuntimeError(f"the deployment ended as {done['phase']}: {done['detail'] or done['run_detail']}")
        steps = sorted(self._steps("loop", _LONG_STEPS), key=lambda step: step["step"])
        moved = done["runs"][1]["from_step"]
        losses = {step["step"]: step["loss"] for step in steps[-_LONG_STEPS:]}
        around = [losses[k] for k in range(moved - 1, moved + 3)]
        self._say(f"moved behind step {moved} at a cost of {done['restart_cost_s']:.1f} s")
        self._say("loss around the change: " + ", ".join(f"{loss:.4f}" for loss in around))
        times: dict[bool, list[float]] = {True: [], False: []}
        for step in steps[-_LONG_STEPS:]:
            times[step["step"] > moved + _SETTLED].append(step["step_s"])
        before_s, after_s = statistics.median(times[False]), statistics.median(times[True])
        self._say(f"step time {before_s * 1e3:.0f} ms before, {after_s * 1e3:.0f} ms after")
        return {
            "from": start["notation"],
            "to": best["notation"],
            "moved_behind_step": moved,
            "cost_s": done["restart_cost_s"],
            "losses_around": around,
            "first_loss": losses[1],
            "last_loss": losses[_LONG_STEPS],
            "step_s_before": before_s,
            "step_s_after": after_s,
            "predicted_step_s_after": best["iteration_s"],
        }

    def _measure(self, trial: Trial) -> float:
        """Deploy a plan and give the median step time of its settled steps."""
        plan = self._predicted(trial, None)
        path = self._deploy("loop", plan["plan"], _STEPS)
        done = self._until(path, lambda document: document["phase"] in ("finished", "failed", "stopped"))
        if done["phase"] != "finished":
            raise RuntimeError(f"{plan['notation']} ended as {done['phase']}: {done['detail'] or done['run_detail']}")
        steps = self._steps("loop", _STEPS)
        time_s: float = statistics.median(step["step_s"] for step in steps if step["step"] > _SETTLED)
        self._say(f"{plan['notation']}: {time_s * 1e3:.0f} ms a step, loss {done['loss']:.4f} after {_STEPS} steps")
        return time_s

    def _predicted(self, trial: Trial, calibration: Any) -> Any:
        """Answer for exactly this plan."""
        degrees = {name: value for name, value in asdict(trial).items() if value is not None}
        count = trial.pp * trial.dp * trial.tp
        request = {
            "job": JOB,
            "cluster": CLUSTER,
            "gpus": [{"gpu_type": "cpu", "counts": [count]}],
            "degrees": degrees,
            **({} if calibration is None else {"calibration": calibration}),
        }
        return self._post("/v1/parallel-plans", request)["best"]

    def _deploy(self, job_id: str, plan: Any, num_steps: int) -> str:
        training = {"device": "cpu", "num_steps": num_steps, "checkpoint_interval": 0, "schedule": {"warmup_steps": 5}}
        launch = {"master_port": 29_600, "environment": {"OMP_NUM_THREADS": "1"}}
        request = {"job_id": job_id, "job": JOB, "plan": plan, "cluster": CLUSTER}
        document = self._post("/v1/deployments", {**request, "training": training, "launch": launch})
        return str(document["links"]["self"])

    def _steps(self, job_id: str, count: int) -> list[Any]:
        """The newest steps, as soon as all are known of all ranks."""
        path = f"/v1/jobs/{job_id}/metrics?limit=500"
        return list(self._until(path, lambda document: _is_whole(document, count))["steps"][:count])

    def _until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            answer = self._service.call("GET", path)
            if answer.status == 200 and holds(answer.body):
                return answer.body
            time.sleep(_POLL_S)
        raise RuntimeError(f"{path} did not get there within {_LIMIT_S:.0f} s: {answer.body}")

    def _get(self, path: str) -> Any:
        return self._until(path, lambda _: True)

    def _post(self, path: str, document: Any) -> Any:
        answer = self._service.call("POST", path, json.dumps(document).encode())
        if answer.status >= 300:
            raise RuntimeError(f"POST {path} answered {answer.status}: {answer.body}")
        return answer.body


def _is_whole(document: Any, count: int) -> bool:
    """Whether the newest launches hold this many steps, the last one included."""
    steps = document.get("steps", [])
    return len(steps) >= count and steps[0]["step"] % count == 0 and steps[count - 1]["step"] == 1


def table(results: list[Result]) -> Iterator[str]:
    """Lines of a table for people."""
    yield f"{'plan':44s} {'measured':>9s} {'stated':>9s} {'error':>6s} {'calibrated':>10s} {'error':>6s}"
    for result in results:
        mark = " (calibrates)" if result.calibrating else ""
        yield (
            f"{result.notation + mark:44s} {result.measured_s * 1e3:6.0f} ms {result.white_box_s * 1e3:6.0f} ms "
            f"{result.white_box_error:6.0%} {result.calibrated_s * 1e3:7.0f} ms {result.calibrated_error:6.0%}"
        )


def main(
    output: Annotated[Path, typer.Option(help="Folder of deployments and result.json.")] = Path("out/loop"),
) -> None:
    """Close the loop: plan, deploy on CPU ranks, measure, calibrate, plan again, reconfigure."""
    if missing := missing_extra("the closed loop"):
        sys.stderr.write(f"{missing}\n")
        raise typer.Exit(2)
    if (os.cpu_count() or 1) < 2:
        sys.stderr.write("the closed loop runs two ranks at a time; this machine has one processor\n")
        raise typer.Exit(2)
    folder = output / time.strftime("%Y%m%d-%H%M%S")
    with running_service("--deployments", str(folder)) as service:
        loop = Loop(service, lambda line: print(line, flush=True))
        results = loop.errors()
        print("\n".join(table(results)))
        held_out = [result for result in results if not result.calibrating]
        before = statistics.median(result.white_box_error for result in held_out)
        after = statistics.median(result.calibrated_error for result in held_out)
        print(f"median error on {len(held_out)} plans that did not calibrate: {before:.1%} -> {after:.1%}")
        change = loop.change()
    document = {
        "command": command_line(),
        "machine": {"processor": platform.processor() or platform.machine(), "processors": os.cpu_count()},
        "steps": _STEPS,
        "results": [asdict(result) for result in results],
        "median_error_before": before,
        "median_error_after": after,
        "change": change,
    }
    (folder / "result.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"written to {folder / 'result.json'}")
