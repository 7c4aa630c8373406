"""The workers of the service: what they load, and when."""

import importlib
from collections.abc import Iterator
from contextlib import closing, contextmanager

from api.common.setting_kinds import RAY
from api.common.settings import Settings
from executor.extra import missing_extra
from models.policies import FORMULATIONS
from solver.engine import WorkerEngine
from solver.forking import ForkingEngine
from solver.pool import WorkerPool
from solver.process import LocalEngine
from stowplan.errors import ExtraMissingError

# What workers have before one is ready, and what after that, the most wanted first: the process that they are forked
# from loads it while nobody waits for a fork, the serving process none of it. Pyomo and CVXPY would be a sixth of what
# a service without work has in memory, and take a second once in a worker whose task needs them: a policy that declares
# its model, an export, why a model has no solution. What fits models to observations (with SciPy's optimisers) would be
# a tenth, and takes 0.15 s once.
PRELOAD = ("api.plans.planning", "api.reading.packed")
READERS_LOAD = (
    "api.plans.reading",
    "api.comparisons.reading",
    "api.replays.reading",
    "api.plans.variants",
    "api.forecasts.reading",
    "api.reading.documents",
    "api.reading.cluster_states",
)
IDLE_LOAD = (
    "api.plans.reading_planning",
    # With HiGHS; SCIP, which few ask for, takes hundredths of a second.
    "solver.backends.decomposition",
    *FORMULATIONS,
    "models.parallelism.planner",
    *READERS_LOAD[1:],
)
# Large texts that wait for a reader; each is in memory.
_READING_QUEUE = 8
# A task may be what workers die of, say for want of memory.
_ATTEMPTS = 3
# Room for pictures, models and resumed plans beside the plans that wait.
_AUXILIARY_QUEUE = 64


@contextmanager
def worker_engine(settings: Settings) -> Iterator[WorkerEngine]:
    """Give what runs workers: of plans, and of all that pools with the same engine do.

    Raises
    ------
    ExtraMissingError
        When Ray is chosen and not installed.
    InputError
        When there is no cluster at the address.
    """
    if settings.engine != RAY:
        with closing(ForkingEngine(PRELOAD, IDLE_LOAD)) as local:
            yield local
        return
    if missing := missing_extra("the engine ray", ("ray",), extra="ray"):
        raise ExtraMissingError(missing)
    # It takes a second to load.
    engine = importlib.import_module("solver.ray_engine")
    with engine.RayEngine(settings.ray_address) as connected:
        yield connected


def worker_pool(settings: Settings, engine: WorkerEngine) -> WorkerPool:
    """Pool of workers that know all models."""
    queue_size = settings.queue_size + _AUXILIARY_QUEUE
    return WorkerPool(
        settings.workers,
        queue_size,
        settings.tasks_per_worker,
        PRELOAD,
        IDLE_LOAD,
        warm_spare=True,
        start_limit_s=settings.worker_start_s,
        start_attempts=settings.worker_start_attempts,
        gives_up=False,
        attempts=_ATTEMPTS,
        engine=engine,
    )


def reader_pool(settings: Settings, engine: WorkerEngine) -> WorkerPool:
    """Pool of processes that read large requests; it solves nothing, so that it is there while all workers solve.

    They are processes of this machine, also where workers are elsewhere: what they read has just come here.
    """
    return WorkerPool(
        settings.readers,
        _READING_QUEUE,
        settings.tasks_per_worker,
        READERS_LOAD,
        warm_spare=True,
        start_limit_s=settings.worker_start_s,
        start_attempts=settings.worker_start_attempts,
        gives_up=False,
        attempts=_ATTEMPTS,
        engine=engine if isinstance(engine, LocalEngine) else None,
    )
