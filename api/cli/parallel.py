"""`stowplan parallel`: 3D-parallel plans for one job, without a server."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.files import UNCAPPED
from api.cli.json_files import read_json
from api.cli.local_worker import LocalPlanner
from api.cli.model_file import OF_THE_FILE, plan_of_file, read_model
from api.cli.options import Json, Output, given, named_calibration, picture_format, print_document
from api.cli.parallel_console import print_answer
from api.cli.paths import Catalogue, readable, write
from api.cli.progress import progress_line
from api.convert.parallel_answer import answer_document
from api.convert.parallel_request import in_body, parallel_request, time_limit_s
from api.convert.reading import read_document
from api.figures.request import ParallelFigure
from api.schemas.parallel import ParallelPlanBody
from api.schemas.parallel_answer import ParallelPlanAnswer
from models.parallelism.request import Planner
from models.pipeline_schedule import PipelineSchedule
from models.readers import is_file_name
from models.software import Software
from stowplan.errors import InputError

_BODY = TypeAdapter(ParallelPlanBody)
_GLOBAL_BATCH = 256
_DEGREES = re.compile(
    r"pp(\d+)(?:x(\d+))?(zbv|zb)?[ ,]*dp(\d+)[ ,]*tp(\d+)[ ,]*(?:cp(\d+)[ ,]*)?(?:ep(\d+)[ ,]*)?(?:mb|x)(\d+)",
    re.IGNORECASE,
)


@command("parallel", epilog=EPILOG)
def parallel_command(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A whole request as JSON; - for standard input.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model of the catalogue, such as llama2-13b, or a file that describes one: config.json of Hugging "
            "Face, arguments of Megatron-LM, TOML of torchtitan, YAML of NeMo."
        ),
    ] = None,
    gpus: Annotated[
        list[str] | None, typer.Option(help="How many GPUs: 16, several (8,16,32), or a range (8-64).")
    ] = None,
    gpu_type: Annotated[
        list[str] | None, typer.Option(help="GPU of the catalogue, such as h100; several are compared.")
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1, help="GPUs of a node, if unusual.")] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, help="Sequences per step.", show_default=str(_GLOBAL_BATCH))
    ] = None,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Sequences of a micro-batch per replica.")] = None,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="Tokens of a sequence.")] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16, fp32, fp8 or mxfp8.")] = None,
    checkpointing: Annotated[
        str | None, typer.Option(help="none, selective, full, or auto: the search chooses.")
    ] = None,
    zero_stage: Annotated[
        str | None, typer.Option(help="What ZeRO shards: 0, 1, 2, 3, or auto: the search chooses.")
    ] = None,
    software: Annotated[
        str | None, typer.Option(help=f"What trains: {', '.join(software.value for software in Software)}.")
    ] = None,
    planner: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(planner.value for planner in Planner)}.")
    ] = None,
    degrees: Annotated[
        str | None,
        typer.Option(
            help="Evaluate this plan instead: pp2,dp2,tp4,mb32 (micro-batches; pp2x4: stages in 4 parts each, "
            "interleaved, pp2x4zb: zero-bubble, pp2zbv: ZB-V; tp4,cp2,ep8: sequences shared by 2 replicas, experts by "
            "8), or `file`: that of --model."
        ),
    ] = None,
    context_parallel: Annotated[
        str | None,
        typer.Option(
            help="Replicas that share sequences: degrees to search, 2 or 1,2,4.", show_default="what is worth it"
        ),
    ] = None,
    expert_parallel: Annotated[
        str | None, typer.Option(help="Replicas that share experts: degrees to search, 8 or 1,8.", show_default="all")
    ] = None,
    schedules: Annotated[
        str | None,
        typer.Option(
            help=f"Pipeline schedules to search, of {', '.join(PipelineSchedule)}: zbv or 1f1b,zbv.",
            show_default="all that the software runs",
        ),
    ] = None,
    tokens: Annotated[
        float | None, typer.Option(min=1, help="Tokens to train on, such as 15e12: for how long.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What `stowplan calibrate` wrote of this site, or a system, such as dgx-a100-80gb-megatron-lm.",
        ),
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the planning.")] = None,
    json_: Json = False,
    figure: Annotated[Path | None, typer.Option(help="Draw pipeline and throughput into this .svg or .png.")] = None,
    output: Output = None,
    _catalogue: Catalogue = None,
) -> None:
    """Find pipeline stages, data and tensor degrees and micro-batches for a job on GPUs of the catalogue."""
    picture = picture_format(figure)
    training = {
        "model": model,
        "global_batch": global_batch,
        "micro_batch": micro_batch,
        "sequence_length": sequence_length,
        "precision": precision,
        "checkpointing": checkpointing,
        "zero_stage": int(zero_stage) if zero_stage is not None and zero_stage.isdecimal() else zero_stage,
        "software": software,
    }
    options = given(
        {
            "planner": planner,
            "time_limit_s": time_limit,
            "context_degrees": _sharing("--context-parallel", context_parallel),
            "expert_degrees": _sharing("--expert-parallel", expert_parallel),
            "schedules": None if schedules is None else [word.strip() for word in schedules.split(",")],
        }
    )
    if file is None:
        document = request_document(given(training), gpus or [], gpu_type or [], gpus_per_node, degrees)
    else:
        _refuse_beside_file(training | {"gpus": gpus, "gpu_type": gpu_type, "degrees": degrees})
        document = read_json(readable(file))
    if isinstance(document, dict) and calibration is not None:
        named = named_calibration(calibration)
        document["calibration"] = named if isinstance(named, str) else read_json(named)
    if isinstance(document, dict) and options:
        document["options"] = {**document.get("options", {}), **options}
    if isinstance(document, dict) and tokens is not None:
        document["num_tokens"] = int(tokens)
    body = read_document(_BODY, to_json(document, inf_nan_mode="constants"))
    request = parallel_request(body)
    with LocalPlanner() as local:
        with progress_line() as watcher, in_body(body):
            found = local.parallel(request, time_limit_s(body.options, UNCAPPED), watcher)
        answer = answer_document(request, found)
        try:
            if output is not None:
                write(output, (answer.model_dump_json(indent=2) + "\n").encode())
            if figure is not None and picture is not None:
                with busy(f"drawing {figure}"):
                    write(figure, local.draw_parallel(ParallelFigure(answer=answer, format=picture)))
        finally:
            _print(answer, json_)


def _print(answer: ParallelPlanAnswer, as_json: bool) -> None:
    if as_json:
        print_document(answer)
    else:
        print_answer(console.output(), answer)


def request_document(
    training: dict[str, Any], gpus: list[str], gpu_types: list[str], gpus_per_node: int | None, degrees: str | None
) -> dict[str, Any]:
    """A body from options.

    Raises
    ------
    InputError
        When options are missing or cannot be read.
    """
    if "model" not in training:
        raise InputError(
            "--model is missing; name a model of the catalogue such as llama2-13b or a file that describes one, "
            "or give a FILE"
        )
    name, described = str(training["model"]), None
    if is_file_name(name):
        described = read_model(name, given=training, hint=degrees is None)
        training = {**described.fields, **{field: value for field, value in training.items() if field != "model"}}
    training = {"global_batch": _GLOBAL_BATCH, **training}
    counts = _counts(gpus)
    plan: dict[str, Any] | None = None
    if degrees is not None and degrees.strip() == OF_THE_FILE:
        plan, counts = plan_of_file(described, training, counts), {}
    elif degrees is not None:
        plan = degrees_of(degrees)
    offers = _offers(counts, gpu_types, gpus_per_node)
    if not offers:
        raise InputError("--gpu-type is missing; name a GPU of the catalogue such as h100")
    document: dict[str, Any] = {"job": training, "gpus": offers}
    return document if plan is None else {**document, "degrees": plan}


def _offers(counts: dict[str, Any], gpu_types: list[str], gpus_per_node: int | None) -> list[dict[str, Any]]:
    names = [name.strip() for text in gpu_types for name in text.split(",") if name.strip()]
    return [{"gpu_type": name, **counts, **given({"gpus_per_node": gpus_per_node})} for name in names]


def _counts(texts: list[str]) -> dict[str, Any]:
    """Counts or a range from `16`, `8,16,32` or `8-64`."""
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if len(parts) == 1 and "-" in parts[0]:
        low, _, high = parts[0].partition("-")
        return {"min_gpus": _count(low), "max_gpus": _count(high)}
    return {"counts": [_count(part) for part in parts]} if parts else {}


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"--gpus has {text!r}; give whole numbers: 16, 8,16,32 or 8-64")
    return int(text)


def _sharing(name: str, text: str | None) -> list[int] | None:
    """Degrees from `2` or `1,2,4`."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise InputError(f"{name} is {text!r}; give degrees: 2 or 1,2,4")
    return [int(part) for part in parts]


def degrees_of(text: str) -> dict[str, int | str]:
    """Degrees from `pp2,dp2,tp4,mb32`.

    Raises
    ------
    InputError
        When the text is none.
    """
    match = _DEGREES.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"--degrees is {text!r}; write pp2,dp2,tp4,mb32: stages, replicas, shards, micro-batches; pp2x4 for 4 "
            "parts a stage, pp2x4zb and pp2zbv for zero-bubble schedules, cp2 and ep8 behind tp4 for replicas that "
            "share sequences and experts"
        )
    names = ("pp", "virtual_stages", "schedule", "dp", "tp", "context_parallel", "expert_parallel", "num_micro_batches")
    words = {name: found for name, found in zip(names, match.groups(), strict=True) if found is not None}
    schedule = words.pop("schedule", "").lower()
    degrees: dict[str, int | str] = {name: int(found) for name, found in words.items()}
    if schedule:
        kind = PipelineSchedule.ZBV if schedule == "zbv" else PipelineSchedule.ZERO_BUBBLE
        degrees |= {"schedule": kind.value, **({"virtual_stages": 2} if "virtual_stages" not in degrees else {})}
    return degrees


def _refuse_beside_file(options: dict[str, object]) -> None:
    useless = sorted(given(options))
    if useless:
        names = ", ".join("--" + name.replace("_", "-") for name in useless)
        raise InputError(f"{names} beside FILE: a request in a file says all of that itself")
