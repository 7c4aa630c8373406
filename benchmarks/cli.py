"""`python -m benchmarks`: every measurement is a command, whose module is loaded when it is chosen."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import typer

from api.cli.commands import LazyCommand, LazyGroup, command
from stowplan.errors import StowplanError

_BAD_INPUT = 2

# The first line of each function; a test compares them.
COMMANDS: Mapping[str, LazyCommand] = {
    "list": LazyCommand("benchmarks.suite.commands:list_", "List the suites and all cases that can be made here."),
    "run": LazyCommand(
        "benchmarks.suite.commands:run", "Run a suite: every run in a process of its own, one after another."
    ),
    "figures": LazyCommand(
        "benchmarks.suite.commands:figures",
        "Draw latency by scale, single cases, gap over time and the share of the phases.",
    ),
    "report": LazyCommand(
        "benchmarks.suite.commands:report_",
        "Print targets and tables as Markdown, or put them into `benchmarks/README.md`.",
    ),
    "compare": LazyCommand(
        "benchmarks.suite.commands:compare_", "Say what changed between two results, beyond the noise."
    ),
    "choice-problems": LazyCommand(
        "benchmarks.policies.choice_problems:main",
        "Compare the decomposition with HiGHS on random choice problems; fails when they disagree.",
    ),
    "arnold-figures": LazyCommand("benchmarks.policies.arnold_figures:main", "Draw Figures 7 and 8 of Arnold."),
    "arnold-latency": LazyCommand(
        "benchmarks.policies.arnold_latency:main", "Compare the exact algorithm of Arnold with general solvers."
    ),
    "arnold-settings": LazyCommand(
        "benchmarks.policies.arnold_settings:main",
        "Plan Table 1 of Arnold and the real fabric for alpha 0 to 0.5; fails when a placement is missing.",
    ),
    "arnold-shapes": LazyCommand(
        "benchmarks.policies.arnold_shapes:main",
        "Plan Arnold on many seeded fabrics: CPU by quantile, share proven, ratio to HiGHS; and on large fabrics.",
    ),
    "arnold-true-spread": LazyCommand(
        "benchmarks.policies.arnold_true_spread:main",
        "Measure how often, and by how much, Eq. 2 itself beats the answer of Eq. 4.",
    ),
    "arena-events": LazyCommand(
        "benchmarks.policies.arena_events:main",
        "Compare Arena's heuristic with the integer program on the same events.",
    ),
    "arena-replays": LazyCommand(
        "benchmarks.replays.arena_replays:main", "Replay the traces of Arena under policies, all by the same rules."
    ),
    "sia-replays": LazyCommand(
        "benchmarks.replays.sia_replays:main", "Replay the traces of Sia under policies, all by the same rules."
    ),
    "suika-replays": LazyCommand(
        "benchmarks.replays.suika_replays:main",
        "Replay the workload of Suika under policies, all by the same rules.",
    ),
    "horizon-replays": LazyCommand(
        "benchmarks.horizon.horizon_replays:main",
        "Replay all traces under horizon and the other policies, under load, and without parts of horizon.",
    ),
    "horizon-bound": LazyCommand(
        "benchmarks.horizon.horizon_bound:main",
        "Bound from below the mean completion time on traces of Sia under any policy that plans every minute.",
    ),
    "arena-bound": LazyCommand(
        "benchmarks.horizon.arena_bound:main",
        "Bound from below the mean completion time on Arena's Philly under any policy.",
    ),
    "horizon-decisions": LazyCommand(
        "benchmarks.horizon.decisions:main",
        "Measure decisions of horizon by size: CPU by phase beside the targets, and how it grows.",
    ),
    "reservation-replays": LazyCommand(
        "benchmarks.reservations.reservation_replays:main",
        "Replay arrivals around a large job that is told four hours ahead: who keeps its nodes free at which price.",
    ),
    "suika-decisions": LazyCommand(
        "benchmarks.policies.suika_decisions:main",
        "Measure Suika's decisions on busy clusters and their gaps to the integer program.",
    ),
    "grid-plans": LazyCommand(
        "benchmarks.planners.grid_plans:main", "Measure how near the grids' plans come to the best plan there is."
    ),
    "joint-recomputation": LazyCommand(
        "benchmarks.planners.joint_recomputation:main",
        "Measure what stages lose whose layers and recomputation are chosen one after the other.",
    ),
    "incremental-plans": LazyCommand(
        "benchmarks.planners.incremental_plans:main",
        "Plan a growing job step by step: quality by number of GPUs, time.",
    ),
    "exact-schedules": LazyCommand(
        "benchmarks.planners.exact_schedules:main",
        "Compare the choice by Suika's formula of 1F1B with that by exact makespans.",
    ),
    "forecasts": LazyCommand(
        "benchmarks.forecasts.forecasts:main",
        "Train forecasters of durations on published traces and test them on the last tenth.",
    ),
    "performance-model": LazyCommand(
        "benchmarks.performance.performance_model:main", "Measure how good the predictions of iteration times are."
    ),
    "published-steps": LazyCommand(
        "benchmarks.performance.published_steps.command:main",
        "Hold predictions against published step times and memory of real training.",
    ),
    "calibrated-steps": LazyCommand(
        "benchmarks.performance.published_steps.calibrated:main",
        "Hold predictions after one and three measured plans against published step times, and their intervals.",
    ),
    "blackwell-steps": LazyCommand(
        "benchmarks.performance.published_steps.blackwell:main",
        "Hold predictions against published step times of Blackwell, experts among them.",
    ),
    "pipeline-schedules": LazyCommand(
        "benchmarks.performance.pipeline_schedules:main",
        "Measure formulas of pipeline schedules against the simulator, and what they cost.",
    ),
    "gpu-steps": LazyCommand(
        "benchmarks.performance.gpu_steps:main",
        "Measure steps of whole models on one GPU against the performance model.",
    ),
    "gpu-priors": LazyCommand(
        "benchmarks.performance.gpu_priors:main", "Hold priors of the native engine against steps of one GPU."
    ),
    "engine-steps": LazyCommand(
        "benchmarks.performance.engine_steps:main",
        "Measure steps of the native engine beside DeepSpeed's on symmetric plans.",
    ),
    "state-carriage": LazyCommand(
        "benchmarks.performance.state_carriage:main",
        "Measure how long a state takes between two processes of one host: through shared memory, and through TCP.",
    ),
    "plan-changes": LazyCommand(
        "benchmarks.performance.plan_changes:main",
        "Change the plan of a training beside it, and by stopping it: what it waits for, by part.",
    ),
    "adaptive-batches": LazyCommand(
        "benchmarks.performance.adaptive_batches:main",
        "Train with the batches that Sia chooses, on 1, 2, 4 and 1 ranks: samples to the same loss, and goodput.",
    ),
    "placement-visible": LazyCommand(
        "benchmarks.placement.placement_visible:main",
        "Train on hosts in network namespaces under three placements and measure the steps (root).",
    ),
    "slurm-connector": LazyCommand(
        "benchmarks.placement.slurm_connector:main",
        "Run the same jobs under Slurm alone and under `stowplan connect slurm`: spread, waiting, makespan.",
    ),
    "near-nodes": LazyCommand(
        "benchmarks.placement.near_nodes:main",
        "Let jobs wait for closer nodes, on a virtual clock: spread, waiting, makespan.",
    ),
    "closed-loop": LazyCommand(
        "benchmarks.service.closed_loop:main",
        "Close the loop: plan, deploy on CPU ranks, measure, calibrate, plan again, reconfigure.",
    ),
    "growing-job": LazyCommand(
        "benchmarks.service.growing_job:main",
        "Grow a running job onto released GPUs, shrink and move it: decisions, plans, what it waits for, losses.",
    ),
    "startup": LazyCommand(
        "benchmarks.service.startup:main",
        "Measure what starting costs: commands, imports, the service until it is ready.",
    ),
    "chaos": LazyCommand(
        "benchmarks.service.chaos:main",
        "Kill workers, services and ranks at random while many clients post; fails on lost or wrong plans.",
    ),
    "large-posts": LazyCommand(
        "benchmarks.service.large_posts:main",
        "Post clusters of up to 100,000 GPUs: CPU of the service and of all, and whether it still answers.",
    ),
    "page": LazyCommand(
        "benchmarks.service.page:main",
        "Measure when the page shows a cluster of up to 10,000 nodes, and how long a drawing of it takes.",
    ),
    "imports": LazyCommand(
        "benchmarks.service.imports:main", "Measure how long the state of a Slurm cluster takes to become a snapshot."
    ),
    "post-to-answer": LazyCommand(
        "benchmarks.service.post_to_answer:main",
        "Measure CPU between POST and answer, process by process, and the memory of an idle service.",
    ),
    "small-plans": LazyCommand(
        "benchmarks.service.small_plans:main",
        "Measure how many small plans a second a service makes, and whose CPU they take.",
    ),
    "warm-rounds": LazyCommand(
        "benchmarks.service.warm_rounds:main",
        "Measure a round in which 1 % of the jobs changed beside a cold one: CPU of all processes, by part.",
    ),
    "load": LazyCommand(
        "benchmarks.service.load:main",
        "Let many clients post small snapshots at once; fails on wrong answers, lost plans and 5xx.",
    ),
    "worker-engines": LazyCommand(
        "benchmarks.service.worker_engines:main",
        "Measure plans a second of workers on this machine and on a Ray cluster, and whose CPU they cost.",
    ),
    "plans-per-second": LazyCommand(
        "benchmarks.service.plans_per_second:main",
        "Say by simulation what saturates first at 1,000 plans a second, and what it would take.",
    ),
    "make-examples": LazyCommand(
        "benchmarks.examples.make_examples:main", "Write the packaged examples, `api/examples/*.json`, anew."
    ),
}


class _Commands(LazyGroup):
    """Builds commands from functions, with the text of their module below, and turns errors into messages."""

    lazy_commands = COMMANDS

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the signature of groups
        """Load a command; None where there is none of that name."""
        known = self.lazy_commands.get(cmd_name)
        if known is None:
            return None
        module, _, function = known.target.partition(":")
        loaded = importlib.import_module(module)
        # Paragraphs behind \\b keep their lines.
        paragraphs = inspect.cleandoc(loaded.__doc__ or "").split("\n\n")
        epilog = "\n\n".join(f"\b\n{text}" for text in paragraphs)
        return command(cmd_name, epilog=epilog)(getattr(loaded, function))

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except StowplanError as error:
            typer.secho(f"error: {error}", fg="red", err=True)
            raise typer.Exit(_BAD_INPUT) from error


app = typer.Typer(
    cls=_Commands,
    help="Measurements: suites, replays, figures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _root() -> None:
    pass
