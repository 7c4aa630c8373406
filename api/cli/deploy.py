"""`stowplan deploy` and `stowplan redeploy`: deployments without a service."""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from rich.console import Console

from api.cli import console
from api.cli.commands import command
from api.cli.deploy_body import body_of_plan, change_of_plan
from api.cli.exit_codes import ExitCode
from api.cli.export import Hosts
from api.cli.options import given
from api.cli.paths import Catalogue, readable
from api.common.private_files import files_for_us_only
from api.convert.reading import read_document
from api.deployments.choice import (
    CLUSTERS,
    Choice,
    PlannedJob,
    choose,
    deployment_of,
    engine_of,
    given_model,
    is_secret,
    keep_cluster,
    schedule_of,
    taken_back_on_error,
)
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from api.schemas.deployment_answer import ProjectionDoc
from executor.bundle import write_bundle
from executor.deployment import Deployment, LaunchOptions
from executor.feedback.run import given_cluster
from executor.launch.backends import BACKENDS, launch_backend
from executor.launch.base import LaunchError
from executor.lifecycle import DeploymentStatus, Fault, Phase, Run
from executor.rank_table import hosts_of
from executor.supervision import Supervisor
from executor.training_job import SYNTHETIC_DATA
from executor.training_options import Decay, EngineName
from models.wording import counted
from stowplan.errors import FileFormatError, InputError, Issue, Severity, pointer_of

_BODY = TypeAdapter(DeploymentBody)
_CHANGE = TypeAdapter(ReconfigureBody)
_POLL_S = 0.5

Project = Annotated[
    bool,
    typer.Option(
        "--project", help="Deploy the best symmetric plan where DeepSpeed is to run one that is not symmetric."
    ),
]
Source = Annotated[
    Path | None,
    typer.Option("--from", metavar="PLAN", help="What `parallel -o` or `plan -o` has written, in place of FILE."),
]
PlannedJobName = Annotated[str | None, typer.Option(help="Job of PLAN, and its name.")]
PlannedRequest = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What was planned, where PLAN is one of several jobs.")
]
Root = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the deployment.")]


@command("deploy")
@files_for_us_only()
def deploy_command(
    folder: Annotated[Path, typer.Option("--output", "-o", help="Folder of the deployment; must not hold one.")],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="JSON file; - for standard input. Beside --from what that does not say."),
    ] = None,
    source: Source = None,
    hosts: Hosts = None,
    job: PlannedJobName = None,
    request: PlannedRequest = None,
    backend: Annotated[str | None, typer.Option(help=f"With --from: one of {', '.join(BACKENDS)}.")] = None,
    device: Annotated[str | None, typer.Option(help="With --from: cuda or cpu.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="With --from: optimiser steps.")] = None,
    token_file: Annotated[str | None, typer.Option(help="With --from: tokens, without a header.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[WEIGHT:]PATH",
            help="With --from: a dataset of Megatron-LM (PATH.bin, PATH.idx; `stowplan tokenize` writes some). May be "
            "given several times, with weights: 3:/data/web.",
        ),
    ] = None,
    validation_share: Annotated[
        float | None, typer.Option(help="With --from: of every dataset, kept for validation.")
    ] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="With --from: steps between evaluations.")] = None,
    document_mask: Annotated[
        bool,
        typer.Option("--document-mask", help="With --from: attention and positions stay within packed documents."),
    ] = False,
    eod_token: Annotated[
        int | None,
        typer.Option(help="With --from: id of the token behind every document; datasets of Megatron-LM need none."),
    ] = None,
    eod_mask_loss: Annotated[
        bool, typer.Option("--eod-mask-loss", help="With --from: the loss leaves out first tokens of documents.")
    ] = False,
    initial_weights: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="With --from: weights of Hugging Face to begin with.")
    ] = None,
    final_weights: Annotated[
        bool, typer.Option("--final-weights", help="With --from: write such at the end, into weights of the folder.")
    ] = False,
    learning_rate: Annotated[float | None, typer.Option(help="With --from: the largest one.")] = None,
    decay: Annotated[Decay | None, typer.Option(help="With --from: how the learning rate falls.")] = None,
    warmup_steps: Annotated[int | None, typer.Option(help="With --from: over which it rises at first.")] = None,
    program: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="LINE",
            help="With --from: a training program of your own and its arguments, quoted as one word.",
        ),
    ] = None,
    layers_hook: Annotated[
        str | None, typer.Option(metavar="MODULE:FUNCTION", help="With --from: layers of your own for the trainer.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="With --from: of the pods under Kubernetes.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write hostfile, configuration, rank table and scripts; start nothing.")
    ] = False,
    project: Project = False,
    engine: Annotated[
        EngineName | None,
        typer.Option(help="What runs the plan, in place of training.engine: native runs those that are not symmetric."),
    ] = None,
    secrets: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            resolve_path=True,
            help="Folder with a file for each variable in launch.secrets.",
        ),
    ] = None,
    _catalogue: Catalogue = None,
) -> None:
    """Start the training that FILE asks for, the body of POST /v1/deployments, and look after it until it is over.

    Ctrl-C writes a checkpoint and ends it. A run that breaks is started again from its last good checkpoint. When the
    terminal is closed, the ranks go on and nobody looks after them: `stowplan redeploy FOLDER` takes over.
    """
    options = {
        "backend": backend,
        "device": device,
        "steps": steps,
        "token_file": token_file,
        "data": data or None,
        "validation_share": validation_share,
        "evaluate_every": evaluate_every,
        "document_mask": document_mask or None,
        "eod_token": eod_token,
        "eod_mask_loss": eod_mask_loss or None,
        "initial_weights": initial_weights,
        "final_weights": final_weights or None,
        "learning_rate": learning_rate,
        "decay": decay,
        "warmup_steps": warmup_steps,
        "command": program,
        "layers_hook": layers_hook,
        "image": image,
    }
    useless = given(options | {"hosts": hosts, "job": job, "request": request})
    rest = None if file is None else readable(file)
    if source is not None:
        body = body_of_plan(readable(source), rest, job_id=job, hosts=hosts, request=request, options=options)
    elif rest is None or useless:
        names = ", ".join("--" + name.replace("_", "-") for name in useless)
        raise InputError(
            f"{names} without --from: FILE says all of that itself" if useless else "give FILE, or --from PLAN"
        )
    else:
        body = read_document(_BODY, _bytes(rest))
    training = body.training.model_copy(update={"engine": engine or body.training.engine})
    body = body.model_copy(update={"project": body.project or project, "training": training})
    runs = engine_of(body)
    choice = choose(body, body.job_id, given_model(body), _no_service, engine=runs, schedule=schedule_of(body))
    deployment = deployment_of(body, choice, secrets)
    out = console.output()
    console.print_warnings(list(_kept_secrets(deployment.launch)))
    _print_projection(out, choice.projection)
    if not deployment.training.sources and runs is not None:
        out.print(SYNTHETIC_DATA)
    if dry_run:
        write_bundle(deployment, folder, folder / "checkpoints")
        places = hosts_of(deployment.ranks())
        where = ", ".join(places)
        out.print(f"{deployment.plan.notation()} on {where}: written to {folder}; README.txt says how to start it")
        if all(host.isdecimal() for host in places):
            # So the planners call the nodes of a plan for which they were given no cluster.
            out.print(f"{where} are numbers of nodes, not hosts: plan with cluster, or name your hosts in the plan")
        return
    supervisor = Supervisor(folder, launch_backend(body.launch.backend))
    with _with_cluster(choice, folder):
        supervisor.deploy(deployment)
    out.print(
        f"{deployment.plan.notation()}: starting {counted(deployment.plan.num_gpus, 'rank')}, logs in {folder / 'runs'}"
        + _limit_words(deployment.launch)
    )
    raise typer.Exit(_look_after(supervisor, out))


@command("redeploy")
@files_for_us_only()
def redeploy_command(
    root: Root,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help='JSON file with the plan, {"plan": ...}; - for standard input.'),
    ] = None,
    source: Source = None,
    hosts: Hosts = None,
    job: PlannedJobName = None,
    request: PlannedRequest = None,
    project: Project = False,
    _catalogue: Catalogue = None,
) -> None:
    """Move the deployment in FOLDER to the plan in FILE, or go on with the plan that it has, and look after it.

    The new ranks start while the old ones still train; the training goes on from the state that those hand over
    (engine native), or from a checkpoint written for the change. What was stopped or has failed goes on from its last
    good checkpoint. When another command looks after the deployment, that one carries the change out and this one ends
    at once.
    """
    present = Supervisor(root, launch_backend("local")).deployment()
    supervisor = Supervisor(root, launch_backend(present.launch.backend))
    out = console.output()
    asked = _change(file, source, present, {"hosts": hosts, "job": job, "request": request})
    if asked is not None:
        body = asked.model_copy(update={"project": asked.project or project})
        known, own = given_cluster(root), set(present.plan.gpus)
        choice = choose(
            *(body, present.name, present.model, _no_service, known, own),
            engine=present.engine,
            schedule=present.training.schedule,
        )
        with _with_cluster(choice, root):
            supervisor.reconfigure(present.changed_to(choice.plan))
        _print_projection(out, choice.projection)
        out.print(f"{present.plan.notation()} -> {choice.plan.notation()}")
    elif supervisor.state().phase.final:
        supervisor.reconfigure(present)
        out.print(f"{present.plan.notation()}: goes on from the last good checkpoint")
    raise typer.Exit(_look_after(supervisor, out))


def _change(
    file: Path | None, source: Path | None, present: Deployment, options: Mapping[str, Any]
) -> ReconfigureBody | None:
    """What a deployment is to be moved to, in FILE or as a planner wrote it; None: it stays as it is."""
    if source is not None:
        if file is not None:
            raise InputError("FILE beside --from: both say the plan; give one of them")
        more = {"job_id" if name == "job" else name: value for name, value in options.items()}
        return change_of_plan(readable(source), **more, present=present)
    if useless := given(options):
        raise InputError(f"{', '.join('--' + name for name in useless)} without --from")
    return None if file is None else read_document(_CHANGE, _bytes(readable(file)))


def _kept_secrets(launch: LaunchOptions) -> Iterator[Issue]:
    """A warning for every secret that comes as a plain variable."""
    for name in filter(is_secret, launch.environment):
        detail = (
            "is kept with the deployment; name it in launch.secrets, with a file in the folder that --secrets names"
        )
        pointer = pointer_of("launch", "environment", name)
        yield Issue(code="kept_secret", pointer=pointer, detail=detail, severity=Severity.WARNING)


def _limit_words(launch: LaunchOptions) -> str:
    limit_s = launch.run_limit_s
    return "" if limit_s is None else f"; {launch.backend} ends a run after {limit_s / 3600:g} h (launch.time_limit_s)"


@contextmanager
def _with_cluster(choice: Choice, folder: Path) -> Iterator[None]:
    """Keep the cluster of a plan in the folder of its deployment, unless the block fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with taken_back_on_error(folder, CLUSTERS):
            keep_cluster(choice, folder)
            yield
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error


def _look_after(supervisor: Supervisor, out: Console) -> ExitCode:
    """Advance the deployment until it is over, and say what happens; nothing where another process does so."""
    lease = supervisor.lease()
    if lease is None:
        out.print("another process looks after the deployment")
        return ExitCode.PLANNED
    asked: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        with lease:
            return _followed(supervisor, out, asked)
    finally:
        signal.signal(signal.SIGINT, previous)


def _followed(supervisor: Supervisor, out: Console, asked: list[int]) -> ExitCode:
    """Advance until the end, and say what changes; what is put into `asked` stops the deployment."""
    said, fault, number = ("", ""), supervisor.state().fault, supervisor.state().current.number
    while True:
        try:
            if asked:
                supervisor.stop()
                # Not before: what could not be stopped now is stopped the next time.
                asked.clear()
            supervisor.advance()
            status = supervisor.status()
        except (LaunchError, OSError) as error:
            # A full disk or a host that is away: both may end, and the ranks may well train on.
            said = _say(out, f"cannot be looked after: {error}", "", said)
            time.sleep(_POLL_S)
            continue
        state = status.state
        if state.fault is not None and state.fault != fault:
            fault = state.fault
            _print_last_lines(out, fault)
        if state.current.cost_s is not None and state.current.number > number:
            number = state.current.number
            out.print(_cost_line(state.current), markup=False)
        own = "" if status.run.detail in state.detail else status.run.detail
        detail = "; ".join(filter(None, (state.detail, own)))
        said = _say(out, _line(status), detail, said)
        if state.phase.final:
            return _exit_code(state.phase)
        time.sleep(supervisor.rest_s(state))


def _say(out: Console, line: str, detail: str, before: tuple[str, str]) -> tuple[str, str]:
    """Print a line that is not the one before, with its detail where that is new; gives both."""
    if (line, detail) != before:
        out.print(f"{line} ({detail})" if detail not in ("", before[1]) else line, markup=False)
    return line, detail


def _print_last_lines(out: Console, fault: Fault) -> None:
    for rank in fault.dead:
        out.print(f"{rank.describe()}, in run {fault.run}:", markup=False)
        for line in rank.last_lines:
            out.print(f"    {line}", markup=False, highlight=False)


def _line(status: DeploymentStatus) -> str:
    loss = "" if status.loss is None else f", loss {status.loss:.4f}"
    return f"{status.state.phase}: step {status.step}{loss}, {status.state.current.plan}"


def _cost_line(run: Run) -> str:
    """What a change has cost, with its parts where they are known."""
    parts = "" if run.stall is None else f": {run.stall.described()}"
    moved = "" if run.movement is None else f"; {run.movement.described()}"
    return f"{run.change}: trained again after {run.cost_s:.2f} s{parts}{moved}"


def _exit_code(phase: Phase) -> ExitCode:
    codes = {Phase.FINISHED: ExitCode.PLANNED, Phase.STOPPED: ExitCode.QUIT}
    return codes.get(phase, ExitCode.NO_SOLUTION)


def _print_projection(out: Console, projection: ProjectionDoc | None) -> None:
    if projection is not None:
        out.print(
            f"projected from {projection.asked}: iteration {projection.before_s:.3g} s -> {projection.after_s:.3g} s, "
            f"{projection.loss:.1%} of the throughput lost, as predicted"
        )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError.at(str(path), None, f"cannot be read: {error.strerror}") from error


def _no_service(plan_id: str, job_id: str) -> PlannedJob:
    raise InputError(f"plan_id {plan_id!r} for job {job_id!r} needs a service; give the plan itself in plan")
