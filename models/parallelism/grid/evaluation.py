"""What the search of a grid found, the plans and times that come of it, and why what is missing is missing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from models.parallel_plan import ParallelPlan
from models.parallelism.grid.assembly import assembled
from models.parallelism.grid.choices import Criterion
from models.parallelism.grid.options import GridOptions, PlanRule
from models.parallelism.grid.search import Candidate, GridSearch
from models.parallelism.grid.space import PlanSpace
from models.parallelism.legality import next_tensor_degree
from models.parallelism.results import FrontierPlan, Grid, PlanEstimate, Rejection, RejectionReason
from models.performance.iteration.model import PerformanceModel
from models.wording import counted, listed, size_of
from stowplan.arrays import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedGrid:
    """What the search of a grid found; `proxy` None when no plan is legal."""

    space: PlanSpace
    num_gpus: int
    pp: int
    search: GridSearch | None
    frontier: IntArray
    num_micro_batches: int
    proxy: Candidate | None
    refined: Candidate | None

    def built(self, options: GridOptions) -> Grid:
        """The grid with its plans."""
        space, candidates = self.space, []
        if self.search is not None:
            candidates = self.search.candidates(self.frontier, self.num_micro_batches, Criterion.COMMUNICATION)
        return Grid(
            gpu_type=space.gpu_type,
            num_gpus=self.num_gpus,
            pp=self.pp,
            frontier=tuple(
                FrontierPlan(
                    plan=candidate.plan(space),
                    computation_bias=candidate.computation_bias,
                    communication_load_s=candidate.communication_load_s,
                )
                for candidate in candidates
            ),
            proxy=None if self.proxy is None else estimate(self.proxy.plan(space), space.model, options),
            num_plans=0 if self.search is None else len(self.search.bias),
            rejections=tuple(self.rejections()),
        )

    def rejections(self) -> Iterator[Rejection]:
        """Why plans of this grid are no plans."""
        profile, num_gpus = self.space.model.profile, self.num_gpus
        name = f"PP{self.pp} on {num_gpus} {self.space.gpu_type}"
        if _zero_excludes(self.space, self.pp):
            detail = f"{profile.software} has no pipelines at ZeRO stage {profile.zero_stage}"
            yield Rejection(reason=RejectionReason.ZERO_STAGE, candidate=name, detail=detail)
        elif self.pp > profile.num_layers:
            detail = (
                f"{counted(self.pp, 'stage')} for the {counted(profile.num_layers, 'layer')} of {profile.name}; "
                "at least one layer each"
            )
            yield Rejection(reason=RejectionReason.LAYERS, candidate=name, detail=detail)
        elif self.search is None:
            detail = (
                f"{counted(num_gpus, 'GPU')} on nodes of {self.space.gpus_per_node} cannot be divided into "
                f"{counted(self.pp, 'stage')}"
            )
            yield Rejection(reason=RejectionReason.NODES, candidate=name, detail=detail)
        elif not self.search.num_micro_batches:
            detail = f"none of the numbers of micro-batches divides the global batch of {profile.global_batch}"
            yield Rejection(reason=RejectionReason.BATCH, candidate=name, detail=detail)
        elif self.proxy is None:
            yield self._unfitting(self.search, name)
        yield from self._tensor_degrees()

    def _unfitting(self, search: GridSearch, name: str) -> Rejection:
        """Why no partition fits: memory, or no local batch is whole."""
        closest, model = search.closest(), self.space.model
        usable = model.usable_bytes(self.space.gpu_type)
        if closest is None or closest.needed_bytes <= usable:
            fixed = f" with a micro-batch of {model.profile.micro_batch}" if model.profile.micro_batch else ""
            detail = f"the global batch of {model.profile.global_batch} does not divide among the replicas{fixed}"
            return Rejection(reason=RejectionReason.BATCH, candidate=name, detail=detail, count=len(search.bias))
        layers, sizes = listed(closest.layers, "layer"), listed(closest.sizes, "GPU")
        micro_batches = counted(closest.num_micro_batches, "micro-batch")
        return Rejection(
            reason=RejectionReason.OUT_OF_MEMORY,
            candidate=f"{name} ({layers} on {sizes}, {micro_batches})",
            detail=f"needs {size_of(closest.needed_bytes)} on its fullest GPU, {size_of(usable)} are usable",
            count=len(search.bias),
            needed_bytes=closest.needed_bytes,
            usable_bytes=usable,
        )

    def _tensor_degrees(self) -> Iterator[Rejection]:
        """Powers of two that nodes would allow and the model does not."""
        profile = self.space.model.profile
        most = min(self.space.gpus_per_node, self.num_gpus)
        refused = [1 << k for k in range(most.bit_length()) if 1 << k <= most]
        refused = [tp for tp in refused if not profile.admits_tensor_degree(tp)]
        if refused:
            name, count = next((name, count) for name, count in profile.tensor_units if count % refused[0])
            detail = f"tensor degree {refused[0]} does not divide the {count} {name}"
            yield Rejection(
                reason=RejectionReason.TENSOR_DEGREE,
                candidate=f"TP{refused[0]} on {self.num_gpus} {self.space.gpu_type}",
                detail=f"{detail}; the next degree that works is {next_tensor_degree(profile, refused[0])}",
                count=len(refused),
            )


def search_grid(space: PlanSpace, num_gpus: int, pp: int, options: GridOptions) -> SearchedGrid:
    """Search one grid; nothing is built yet."""
    search, rows, count = None, np.empty(0, dtype=np.int64), 1
    proxy = refined = None
    if pp <= space.model.profile.num_layers and not _zero_excludes(space, pp):
        search = GridSearch.of(space, num_gpus, pp, options.num_micro_batches)
    if search is not None and options.rule is PlanRule.CRIUS:
        proxy = assembled(search)
    elif search is not None:
        rows, count = search.frontier(options.max_frontier)
        proxy = next(iter(search.candidates(rows[:1], count, Criterion.COMMUNICATION)), None)
        refined = search.refined(rows) if options.refine else None
    return SearchedGrid(
        space=space,
        num_gpus=num_gpus,
        pp=pp,
        search=search,
        frontier=rows,
        num_micro_batches=count,
        proxy=proxy,
        refined=refined,
    )


def _zero_excludes(space: PlanSpace, pp: int) -> bool:
    """Whether the ZeRO stage excludes so many pipeline stages."""
    return pp > 1 and not space.model.profile.has_pipelines


def estimate(plan: ParallelPlan, model: PerformanceModel, options: GridOptions) -> PlanEstimate:
    """The plan with its iteration time, measured where it was."""
    iteration = model.iteration(plan)
    measured_s = options.measured(plan) if options.measured is not None else None
    if measured_s is not None:
        iteration = replace(iteration, total_s=measured_s)
    return PlanEstimate(
        plan=plan,
        iteration=iteration,
        memory=model.memory(plan),
        throughput=plan.global_batch / iteration.total_s,
        measured=measured_s is not None,
    )
