"""`stowplan calibrate`: measurements of a site become a calibration of the performance model."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json
from rich.markup import escape

from api.cli import console
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.files import read_json
from api.cli.options import Catalogue, Output, calibration_file, given, write
from api.cli.parallel import degrees_of, request_document
from api.convert.job_model import calibration_from_document, calibration_to_document
from api.convert.parallel_request import parallel_request
from api.convert.reading import read_document
from api.schemas.model import CalibrationDoc
from api.schemas.parallel import ParallelPlanBody
from models.measured import Bandwidth, Training, read_measured_file
from models.measured.bandwidths import told_bandwidth
from models.parallelism.request import Degrees, ParallelRequest
from models.parallelism.uncertainty import measured_time
from models.parallelism.wanted import NamedTypes
from models.performance.iteration.adjustment import NAMES, Adjustment
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.plan_calibration import MeasuredTime, calibrate_plans
from stowplan.errors import InputError

_BODY = TypeAdapter(ParallelPlanBody)
_CALIBRATION = TypeAdapter(CalibrationDoc)


@command("calibrate", epilog=EPILOG)
def calibrate_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="Logs of Megatron-LM, NeMo or torchtitan (one plan: --degrees); output of nccl-tests and ib_write_bw.",
        ),
    ] = None,
    gpu_type: Annotated[str | None, typer.Option(help="GPU of the catalogue, such as h100.")] = None,
    model: Annotated[str | None, typer.Option(help="Model that was trained: see `stowplan parallel`.")] = None,
    degrees: Annotated[str | None, typer.Option(help="Plan of the logs: pp2,dp2,tp4,mb32 (micro-batches).")] = None,
    iteration_time: Annotated[
        list[str] | None,
        typer.Option(metavar="PLAN=SECONDS", help="A measured plan: pp2,dp2,tp4,mb32=3.41; repeatable."),
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1, help="GPUs of a node, if unusual.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of a bandwidth test that does not say it.")] = None,
    ports: Annotated[
        int | None, typer.Option(min=1, help="Network ports of a node, for ib_write_bw.", show_default="one a GPU")
    ] = None,
    global_batch: Annotated[int | None, typer.Option(min=1, help="Sequences per step.")] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence.")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16, fp32 or fp8.")] = None,
    checkpointing: Annotated[str | None, typer.Option(help="none, selective or full.")] = None,
    zero_stage: Annotated[int | None, typer.Option(min=0, max=3, help="What ZeRO shards.")] = None,
    software: Annotated[str | None, typer.Option(help="What trained; see `stowplan parallel`.")] = None,
    calibration: Annotated[Path | None, typer.Option(metavar="FILE", help="Go on from this one.")] = None,
    output: Output = None,
    _catalogue: Catalogue = None,
) -> None:
    """Turn measurements of a site (logs of trainings, iteration times, bandwidth tests) into a calibration."""
    if gpu_type is None:
        raise InputError("--gpu-type is missing; name a GPU of the catalogue such as h100")
    if not files and not iteration_time:
        raise InputError("nothing was measured; give FILEs, or --iteration-time pp2,dp2,tp4,mb32=3.41")
    found = [(path, read_measured_file(path)) for path in files or []]
    start = Calibration() if calibration is None else _read_calibration(calibration)
    kind, usual = NamedTypes(own={}, precision=precision or "bf16", is_cluster=False).find(gpu_type)
    adjustment, told = start.adjustment or Adjustment(), []
    for path, one in found:
        if isinstance(one, Bandwidth):
            try:
                adjustment, sentence = told_bandwidth(
                    adjustment, one, kind, num_ports=ports or gpus_per_node or usual, num_nodes=nodes
                )
            except InputError as error:
                raise InputError(f"{path}: {error.detail}") from error
            told.append(f"{path.name}: {sentence}")
    fields = {
        "model": model,
        "global_batch": global_batch,
        "sequence_length": sequence_length,
        "precision": precision,
        "checkpointing": checkpointing,
        "zero_stage": zero_stage,
        "software": software,
    }
    times: list[MeasuredTime] = []
    for name, plan, one in _trainings(found, degrees, iteration_time or []):
        document = request_document(given(fields), [], [gpu_type], gpus_per_node, plan)
        request = parallel_request(read_document(_BODY, to_json(document)))
        times.append(_time(name, one, request, start))
        told.append(f"{name}: {times[-1].iteration_s:.4g} s an iteration of {times[-1].plan.notation()} on {gpu_type}")
    if times:
        adjustment = calibrate_plans(times, adjustment, known_gpus=bool(start.gpus))
    _write(start, adjustment, told, output)


def _trainings(
    found: Sequence[tuple[Path, Any]], degrees: str | None, texts: Sequence[str]
) -> list[tuple[str, str, Training]]:
    """Name, plan and figures of every training."""
    trainings = [(str(path), degrees, one) for path, one in found if isinstance(one, Training)]
    if trainings and degrees is None:
        raise InputError(f"{trainings[0][0]}: is a log of one plan; say which in --degrees pp2,dp2,tp4,mb32")
    given_times = []
    for text in texts:
        plan, _, seconds = text.partition("=")
        try:
            value = float(seconds)
        except ValueError as error:
            raise InputError(f"--iteration-time is {text!r}; write pp2,dp2,tp4,mb32=3.41 (seconds)") from error
        degrees_of(plan)
        given_times.append((f"--iteration-time {text}", plan, Training(num_iterations=1, iteration_s=value)))
    return [*((name, plan or "", one) for name, plan, one in trainings), *given_times]


def _time(name: str, one: Training, request: ParallelRequest, start: Calibration) -> MeasuredTime:
    """The time of a training on its plan."""
    degrees, offer, job = request.degrees, request.offers[0], request.model
    assert isinstance(degrees, Degrees)  # noqa: S101 - the document has them
    if one.global_batch is not None and one.global_batch != job.global_batch:
        raise InputError(f"{name}: has a global batch of {one.global_batch}; give --global-batch {one.global_batch}")
    seconds = one.iteration_s
    if seconds is None:
        tokens = getattr(job, "sequence_length", None)
        if tokens is None or one.tokens_per_s is None:
            raise InputError(f"{name}: has tokens per second, and the model has no tokens; give a transformer")
        seconds = job.global_batch * tokens / (one.tokens_per_s * degrees.num_gpus)
    return measured_time(job, offer.gpu_type, offer.gpus_per_node, degrees, seconds, calibration=start)


def _read_calibration(path: Path) -> Calibration:
    try:
        return calibration_from_document(
            read_document(_CALIBRATION, to_json(read_json(calibration_file(path))), "calibration")
        )
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error


def _write(start: Calibration, adjustment: Adjustment, told: Sequence[str], output: Path | None) -> None:
    before = Adjustment()
    deviations = adjustment.spread().diagonal() ** 0.5
    for name, deviation in zip(NAMES, deviations.tolist(), strict=True):
        line = f"{name:12} {getattr(adjustment, name):.3f} times the usual time, known to {100 * deviation:.0f} %"
        if getattr(adjustment, name) != getattr(before, name):
            console.errors().print(escape(line), soft_wrap=True)
    known = Calibration(
        gpus=start.gpus, sizes=start.sizes, measured_at_s=float(round(time.time())), adjustment=adjustment
    )
    document = calibration_to_document(known).model_copy(update={"source": "\n".join(told)[:4000]})
    text = document.model_dump_json(indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text.encode())
