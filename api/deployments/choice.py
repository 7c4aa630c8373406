"""From the document that asks for a deployment to the deployment."""

import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from api.convert.job_model import transformer_from_document
from api.convert.located import located
from api.convert.parallel_plan import plan_from_document
from api.convert.snapshot import cluster_from_document
from api.deployments.pointers import in_request
from api.schemas.deployment import DeploymentBody, PlanChoice
from api.schemas.deployment_answer import ProjectionDoc
from api.schemas.training import DataDoc, TrainingOptionsDoc
from executor.data.sources import Data, Source
from executor.deployable import Candidate, assumed_cluster, deployable_plan, usable_gpus
from executor.deployment import Deployment, LaunchOptions, TrainingOptions, batched, deployment_name
from executor.feedback.run import write_cluster
from executor.launch.slurm_options import SlurmOptions
from executor.projection import Projection
from executor.records import write_text
from executor.routing import Routing
from executor.trainable import run_by
from executor.training_options import EngineName, Schedule
from executor.weights.given import numerics_of
from models.numerics import Numerics, RotaryScaling
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.training import trained
from models.performance.iteration.calibration import same_costs
from models.performance.iteration.coefficients import Calibration
from models.transformer import Precision, Transformer
from stowplan.errors import InputError, Issue
from topology.cluster import Cluster

# The clusters that are kept in the folder of a deployment.
CLUSTERS = "cluster*.json"
_SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A parallel plan of a service: its job's model (None: a table) and calibration, and the cluster that it was made
    for."""

    plan: ParallelPlan
    model: Transformer | None
    calibration: Calibration | None
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan that can be deployed, what it trains, and what a projection to it costs.

    `cluster`: what is known of its nodes; None: nothing, so that measured times cannot be compared with predicted ones.
    `is_assumed`: it was made up from the plan and the catalogue.
    """

    plan: ParallelPlan
    model: Transformer
    cluster: Cluster | None
    is_assumed: bool
    projection: ProjectionDoc | None


def engine_of(body: DeploymentBody) -> EngineName | None:
    """What will run a deployment; None: a program of the user's own."""
    return None if body.launch.command is not None else body.training.engine


def schedule_of(body: DeploymentBody) -> Schedule:
    """The schedule that a request asks for."""
    return Schedule(**dict(body.training.schedule))


def choose(
    asked: PlanChoice,
    job_id: str,
    model: Transformer | None,
    planned: Callable[[str, str], PlannedJob],
    known: Cluster | None = None,
    own: Collection[Gpu] = (),
    *,
    engine: EngineName | None,
    schedule: Schedule | None = None,
) -> Choice:
    """Find the plan that is asked for, and project it where that is asked for and needed.

    Parameters
    ----------
    model
        What the job trains, where the request says it; None: what the plan of the service knows.
    planned
        Finds the plan of a job in a plan of the service.
    known
        The cluster that a deployment was given earlier; it holds unless another one comes with the plan.
    own
        (node, GPU) on which the job runs now.
    engine
        What will run it; None: a program of the user's own.
    schedule
        Says whether its learning rate follows the batch, so that the model's becomes that of the plan; None: it does
        not.

    Raises
    ------
    InputError
        When nothing says what the job trains, or the trainer cannot train it; when the plan does not fit the cluster or
        the memory of its GPUs, or the engine cannot run it and it shall or can not be projected.
    """
    found = _source(asked, job_id, model, planned, known, engine)
    if found.model is None:
        raise InputError(f"job {job_id} is a table in its plan: say in job what it trains")
    as_run = run_by(found.model, engine)
    as_planned = trained(batched(as_run, found.plan, schedule or Schedule()), found.plan.training)
    assert isinstance(as_planned, Transformer)  # noqa: S101 - it stays what it is
    candidate = Candidate(
        plan=found.plan,
        model=as_planned,
        cluster=found.cluster,
        calibration=found.calibration,
        available=usable_gpus(found.cluster, own) if found.cluster is not None and asked.plan is not None else None,
        engine=engine,
    )
    hint = " that the job was given; give cluster where that has changed" if found.cluster is known else ""
    with in_request(asked):
        plan, projection = deployable_plan(
            candidate, may_project=asked.project, ignore_memory=asked.ignore_memory, hint=hint
        )
    cost = None if projection is None else _cost(found.plan, projection)
    return Choice(plan=plan, model=as_planned, cluster=found.cluster, is_assumed=found.is_assumed, projection=cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A plan as it was found, and what is known beside it."""

    plan: ParallelPlan
    model: Transformer | None
    cluster: Cluster | None
    calibration: Calibration | None = None
    is_assumed: bool = False


def _source(
    asked: PlanChoice,
    job_id: str,
    model: Transformer | None,
    planned: Callable[[str, str], PlannedJob],
    known: Cluster | None,
    engine: EngineName | None,
) -> _Source:
    """Read the plan of a request, or find it among those of the service; arguments as in `choose`."""
    if asked.plan is None:
        found = planned(asked.plan_id or "", job_id)
        is_same = model is None or (
            found.model is not None and same_costs(run_by(model, engine), run_by(found.model, engine))
        )
        calibration = found.calibration if is_same else None
        return _Source(plan=found.plan, model=model or found.model, cluster=found.cluster, calibration=calibration)
    with located("/plan"):
        plan = plan_from_document(asked.plan)
    if asked.cluster is not None:
        with located("/cluster"):
            return _Source(plan=plan, model=model, cluster=cluster_from_document(asked.cluster))
    if known is not None:
        return _Source(plan=plan, model=model, cluster=known)
    cluster = assumed_cluster(plan, model.precision if model else Precision.BF16)
    return _Source(plan=plan, model=model, cluster=cluster, is_assumed=cluster is not None)


def _cost(asked: ParallelPlan, found: Projection) -> ProjectionDoc:
    return ProjectionDoc(asked=asked.notation(), before_s=found.before_s, after_s=found.after_s, loss=found.loss)


def given_model(body: DeploymentBody) -> Transformer | None:
    """The model that the request itself brings."""
    return None if body.job is None else transformer_from_document(body.job)


def deployment_of(body: DeploymentBody, choice: Choice, secrets: Path | None = None) -> Deployment:
    """Build the deployment; `secrets`: folder with a file for each variable that may be asked for as a secret. Reads
    the configuration beside initial weights.

    Raises
    ------
    InputError
        When the plan cannot be deployed, or there is no such secret.
    """
    training, launch = dict(body.training), dict(body.launch)
    launch["program"] = launch.pop("command")
    if launch["image"] is None:
        del launch["image"]
    training["schedule"] = schedule_of(body)
    launch["python"] = body.launch.python or usual_python(body.launch.backend)
    launch["secrets"] = _secret_files(body.launch.secrets, secrets)
    with located("/launch/slurm"):
        launch["slurm"] = SlurmOptions(**dict(body.launch.slurm))
    with in_request(body):
        training["data"] = _data(body.training.data)
        training["numerics"] = _numerics(body.training, choice.model)
        training["routing"] = Routing(**dict(body.training.routing))
        return Deployment(
            name=deployment_name(body.job_id),
            model=choice.model,
            plan=choice.plan,
            training=TrainingOptions(**training),
            launch=LaunchOptions(**launch),
        )


def _data(asked: DataDoc) -> Data:
    """The data of a request."""
    with located("/data"):
        return Data(**{**dict(asked), "sources": tuple(Source(**dict(source)) for source in asked.sources)})


def _numerics(asked: TrainingOptionsDoc, model: Transformer) -> Numerics:
    """Those of the request, else those of the weights that the training begins with, which must be the model's."""
    found = Numerics() if asked.initial_weights is None else numerics_of(Path(asked.initial_weights), model)
    if asked.numerics is None:
        return found
    given, scaling = dict(asked.numerics), asked.numerics.rotary_scaling
    with located("/numerics"):
        with located("/rotary_scaling"):
            given["rotary_scaling"] = None if scaling is None else RotaryScaling(**dict(scaling))
        return Numerics(**given)


def is_secret(variable: str) -> bool:
    """Whether the value of a variable of this name belongs in no record."""
    return _SECRET.search(variable) is not None


def _secret_files(names: tuple[str, ...], folder: Path | None) -> dict[str, str]:
    """File of every secret; InputError where there is none."""
    place = folder or "the folder that STOWPLAN_SECRETS or --secrets of `stowplan deploy` has to name"
    files = {name: folder / name for name in names} if folder is not None else {}
    missing = [
        Issue(code="unknown_secret", pointer=f"/launch/secrets/{k}", detail=f"is {name!r}: there is no file in {place}")
        for k, name in enumerate(names)
        if name not in files or not files[name].is_file()
    ]
    if missing:
        raise InputError("the launch asks for secrets that are not there", missing)
    return {name: str(path) for name, path in files.items()}


def usual_python(backend: str) -> str:
    """Give the interpreter of the ranks where a request names none."""
    return sys.executable if backend == "local" else "python3"


def keep_cluster(choice: Choice, folder: Path) -> None:
    """Note the cluster of a plan for its runs, and that it holds for later plans when a user gave it."""
    if choice.cluster is not None:
        write_cluster(choice.cluster, folder, choice.plan)
        if not choice.is_assumed:
            write_cluster(choice.cluster, folder)


@contextmanager
def taken_back_on_error(folder: Path, *names: str) -> Iterator[None]:
    """Leave the files of these names or patterns as they were when the block fails."""
    before = {path: path.read_text(encoding="utf-8") for path in _named(folder, names)}
    try:
        yield
    except BaseException:
        for path in _named(folder, names) | before.keys():
            with suppress(OSError):
                if path in before:
                    write_text(path, before[path])
                else:
                    path.unlink()
        raise


def _named(folder: Path, names: Collection[str]) -> set[Path]:
    return {path for name in names for path in folder.glob(name)}
