"""What a policy is: a name, parameters, where its code is, and what it says of itself.

Light: says where validation and formulation are and imports neither, so that the names and documentation of all
policies are known to whoever plans nothing. `models.policies` holds all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import Any

from models.epsilon import EPSILON

Wanted = tuple[int, tuple[str, ...] | None]
"""Size and GPU types (None: any) of a waiting job."""

Waiting = tuple[float, int]
"""Age in seconds and priority of a waiting job."""

Running = tuple[int, float]
"""GPUs of a running job, and the GPU seconds that it has had."""

# Fields of jobs one of which whoever does not ignore them needs.
_MODELS = {"performance", "transformer", "operators", "parallelism"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Base of what users may tune in policies; the type, and the fields that make a variant, choose the policy.

    epsilon: probability in [0, 1) with which a job may still run when an entry of the calendar closes its nodes.
    """

    epsilon: float = EPSILON

    def started_from(self, prices: Mapping[str, float]) -> "Parameters":  # noqa: ARG002 - most start anew
        """The same, for the next decision on a cluster whose last plan had these `prices`."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to plan. What it says of itself is documentation: `title`, `source` (the paper), `needs`, `gives`.

    parameters: type of what may be tuned. variant: fields of the parameters that make this policy, where several share
    the type; no client chooses them otherwise.
    issues: `module:function`, (Snapshot, parameters) -> list[Issue]: every error and warning of a snapshot, with
    pointers as `models.workload.snapshot_issues` has them. Its module imports no solver and no modelling layer.
    formulate: `module:function`, (Snapshot, parameters, PhaseClock) -> Formulation, for a snapshot without errors.
    declarations: modules of the models that solvers get, where `formulate` does without: they load a modelling layer.
    algorithms: solver names that stand for algorithms of its own; no other policy is planned by them.
    is_heuristic: an algorithm answers, with a bound and a gap; optimal is what it cannot promise.
    plans_parallelism: makes 3D plans for all its jobs, and takes what was measured of their runs.
    ignores: fields of jobs that it never looks at; whoever gives one is warned.
    may_start: `module:function`, (parameters, Iterable[Wanted], rooms) -> whether a plan could start any of the waiting
    jobs, where plans do nothing but start jobs; `rooms` has of each GPU type the number of nodes that take work, by
    their free GPUs. Left out: every plan may change what runs.
    changes_after: `module:function`, (parameters, Iterable[Waiting], Iterable[Running]) -> seconds after which a plan
    may change though nothing happens but that jobs wait and run, None for never. Left out: only what happens does.
    plans_without_speed: goes by the speed of jobs, and takes those of which nothing but the size is known, too.
    takes_goodput: takes the observed goodput of jobs, and measured runs of those jobs that it makes 3D plans for.
    asks_calendar: looks at the calendar itself. Left out: it plans the snapshot that `models.around_calendar` makes.
    places_one: gives GPUs to the one job that waits and has parallelism; all others stay where they are.
    splits_nodes: gives a job parts of several nodes; others one node, or whole nodes.
    solver, relative_gap: what decisions over time are solved by, and how well.
    """

    name: str
    parameters: type[Parameters]
    issues: str
    formulate: str
    title: str
    source: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    variant: Mapping[str, Any] = field(default_factory=dict)
    declarations: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    is_heuristic: bool = False
    plans_parallelism: bool = False
    plans_without_speed: bool = False
    takes_goodput: bool = False
    asks_calendar: bool = False
    places_one: bool = False
    splits_nodes: bool = False
    solver: str = "highs"
    relative_gap: float = 1e-4
    may_start: str | None = None
    changes_after: str | None = None

    @property
    def plans_by_size(self) -> bool:
        """Whether it takes jobs of which nothing but the size is known."""
        return set(self.ignores) >= _MODELS

    @property
    def keeps_sizes(self) -> bool:
        """Whether it gives every job as many GPUs as it asks for, no others."""
        return "max_gpus" in self.ignores

    @property
    def plans_by_throughput(self) -> bool:
        """Whether it takes jobs of which nothing but their speed by GPUs is known."""
        return "performance" not in self.ignores

    def chosen_by(self, parameters: Parameters) -> bool:
        """Whether the parameters are this policy's."""
        return type(parameters) is self.parameters and all(
            getattr(parameters, name) == value for name, value in self.variant.items()
        )


@cache
def named(name: str) -> Callable[..., Any]:
    """What `module:function` names, loaded when it is first asked for."""
    found: Callable[..., Any] = resolve_name(name)
    return found
