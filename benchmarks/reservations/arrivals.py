"""Arrivals drawn from a published trace, with forecasts that were made without them.

The trace is taken as that of a site that ends jobs after `limit_s`. A forecaster learns from its first 80 %, calibrates
on the next 10 %, and says of every job of the last 10 % how long it will last when it is submitted, knowing what had
become of the jobs before it (`models.forecast.learning`); arrivals are drawn from these last jobs alone. A GPU of the
trace is a node of the cluster: jobs are of one node or several.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.forecast.history import history_of
from models.forecast.lasting import Lasting
from models.forecast.learning import Learned, learn_from
from models.forecast.scores import CLASS_S, PROBABILITIES
from stowplan.arrays import FloatMatrix
from workloads.trace import Trace, TraceJob, sorted_trace

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A job that arrives; `number`: among those of the trace that it is drawn from."""

    id: str
    number: int
    at_s: float
    num_nodes: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Jobs of a trace to draw from, and what is forecast of them. quantiles_s: (jobs, probabilities), at submission."""

    name: str
    limit_s: float
    learned: Learned
    jobs: tuple[TraceJob, ...]
    quantiles_s: FloatMatrix

    def forecast(self, number: int) -> Lasting:
        """How long a job lasts, when it is submitted."""
        return self._lasting(self.quantiles_s[number].tolist())

    def classed(self, number: int) -> Lasting:
        """The same as a point: the end of the class of ten minutes that the median falls into (appendix G)."""
        median_s = float(self.quantiles_s[number, PROBABILITIES.index(0.5)])
        return Lasting(probabilities=(1.0,), seconds=(min(math.ceil(median_s / CLASS_S) * CLASS_S, self.limit_s),))

    def left(self, numbers: Sequence[int], ages_s: Sequence[float]) -> list[Lasting]:
        """How much longer jobs last that have lasted for so long, as was known when the first was drawn from."""
        learned = self.learned
        calibration = learned.calibration(learned.tested, float(learned.history.submit_s[learned.tested]))
        jobs = np.array(numbers, dtype=np.int64) + learned.tested - learned.first
        ages = np.array(ages_s, dtype=np.float64)
        found = calibration.quantiles(learned.curves, jobs, np.maximum(ages, 1.0), np.array(PROBABILITIES))
        # The longest that any job lasts.
        left_s = np.maximum(np.minimum(found, self.limit_s) - ages[:, None], 0.0)
        return [
            self._lasting(row, most_s=max(0.0, self.limit_s - age_s))
            for row, age_s in zip(left_s.tolist(), ages.tolist(), strict=True)
        ]

    def _lasting(self, quantiles_s: Sequence[float], most_s: float | None = None) -> Lasting:
        most_s = self.limit_s if most_s is None else most_s
        return Lasting(
            probabilities=(*PROBABILITIES, 1.0), seconds=(*(min(value, most_s) for value in quantiles_s), most_s)
        )


def source_of(trace: Trace, limit_s: float) -> Source:
    """Learn from a trace, and keep its last tenth to draw from.

    Raises
    ------
    InputError
        When the trace says too little to learn from.
    """
    limited = sorted_trace(
        trace.name,
        (
            replace(job, duration_s=min(job.duration_s, limit_s))
            for job in trace.jobs
            if job.num_gpus and job.duration_s
        ),
        origin_s=trace.origin_s,
    )
    learned = learn_from(history_of(limited))
    return Source(
        name=trace.name,
        limit_s=limit_s,
        learned=learned,
        jobs=learned.history.jobs[learned.tested :],
        quantiles_s=learned.tests(),
    )


def draw(source: Source, num_busy: float, until_s: float, seed: int, most_nodes: int) -> tuple[Drawn, ...]:
    """Arrivals from second 0 on, as a Poisson process of drawn jobs that would keep `num_busy` nodes busy on average if
    nobody ever waited.

    Parameters
    ----------
    most_nodes
        Jobs of more are left out.
    """
    rng = np.random.default_rng(seed)
    able = [k for k, job in enumerate(source.jobs) if job.num_gpus <= most_nodes]
    node_s = math.fsum(source.jobs[k].gpu_s or 0.0 for k in able) / len(able)
    count = int(rng.poisson(num_busy / node_s * until_s))
    times_s = np.sort(rng.uniform(0.0, until_s, count)).tolist()
    numbers = rng.choice(able, count).tolist()
    return tuple(
        Drawn(
            id=f"job-{k}",
            number=number,
            at_s=at_s,
            num_nodes=source.jobs[number].num_gpus,
            duration_s=source.jobs[number].duration_s or 0.0,
        )
        for k, (at_s, number) in enumerate(zip(times_s, numbers, strict=True))
    )
