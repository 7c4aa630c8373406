"""Calibrations of common systems, from the published rows that are of them: files in `api/calibrations`, with what they
were fitted to and how they predict rows that are left out.

A system whose rows do not say more than the priors, which were fitted to the same rows, has none: where those that are
left out are predicted worse by more than a percent. No prior was fitted to rows of Blackwell (`blackwell.py`). Of H200s
one row was published: it moves the level as far as one measurement may. Experts on Blackwell are in none: calibrated by
the others, rows that are left out are off by 12 % (GB200) and 28 % (B200) in the median.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

import api
from api.convert.job_model import calibration_to_document
from benchmarks.performance.published_steps.blackwell import DENSE, blackwell_cases
from benchmarks.performance.published_steps.calibrated import RowModel, Site, linear_rows
from benchmarks.performance.published_steps.rows import Case
from models.performance.iteration.adjustment import NAMES, deviations
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.plan_calibration import MEASUREMENT, MeasuredTime, calibrate_plans
from models.transformer import Precision
from stowplan.arrays import FloatArray

FOLDER = Path(api.__file__).parent / "calibrations"
# Percent that rows that are left out may be off more.
_WORSE = 1.0

SYSTEMS: Mapping[str, Callable[[Case], bool]] = MappingProxyType(
    {
        "dgx-a100-80gb-megatron-lm": lambda case: (
            case.gpu.name == "a100-80gb" and case.source in ("NVIDIA/Megatron-LM", "Korthikanti")
        ),
        "hgx-h100-nemo-fp8": lambda case: (
            case.gpu.name == "h100" and case.source.startswith("NVIDIA") and case.model.precision is Precision.FP8
        ),
        "a100-40gb-llm-foundry": lambda case: case.gpu.name == "a100-40gb" and case.source == "mosaicml/llm-foundry",
        "hgx-h100-torchtitan": lambda case: case.gpu.name == "h100" and case.source == "pytorch/torchtitan",
        "hgx-h100-llm-foundry-fp8": lambda case: case.gpu.name == "h100" and case.source == "mosaicml/llm-foundry",
        "jean-zay-a100-80gb-megatron-deepspeed": lambda case: case.set.startswith("bloom"),
        # Two sites ran it. OneFlow and LiBai, which ran beside it, are other software: with their rows, too, those that
        # are left out are predicted worse than by the priors.
        "v100-megatron-lm": lambda case: case.gpu.name == "v100" and case.set.endswith("megatron"),
        "hgx-h200-torchtitan-fp8": lambda case: case.gpu.name == "h200" and case.source == "pytorch/torchtitan",
        "gb200-nvl72-nemo": lambda case: case.gpu.name == "gb200" and case.family == DENSE,
        "dgx-b200-nemo": lambda case: case.gpu.name == "b200" and case.family == DENSE,
    }
)


def write_systems(timed: Sequence[Case]) -> list[dict[str, object]]:
    """Write all files; a row of figures for each."""
    FOLDER.mkdir(exist_ok=True)
    rows: list[dict[str, object]] = []
    known = [*timed, *blackwell_cases()]
    for name, of_system in SYSTEMS.items():
        own = [case for case in known if of_system(case)]
        found = calibrate_plans(
            [
                MeasuredTime(plan=case.plan, iteration_s=case.known_s / case.scale, model_of=RowModel(case, None))
                for case in own
            ]
        )
        site = linear_rows(name, own, None)
        before, after = (100 * float(np.median(np.abs(np.expm1(off)))) for off in (site.off, left_out(site)))
        told = "1 published iteration time" if len(own) == 1 else f"{len(own)} published iteration times"
        rest = f"; of rows that are left out, calibrated by the others, {after:.1f} %" if len(own) > 1 else ""
        source = (
            f"Fitted to {told} of {', '.join(sorted({case.source for case in own}))} by "
            f"python -m benchmarks calibrated-steps --fit. Median error {before:.1f} %{rest}."
        )
        row = {"system": name, "rows": len(own), "median %": before, "left out: median %": after}
        rows.append(row | {"shipped": after <= before + _WORSE})
        file = FOLDER / f"{name}.json"
        if after > before + _WORSE:
            file.unlink(missing_ok=True)
            continue
        document = calibration_to_document(Calibration(adjustment=found)).model_copy(update={"source": source})
        file.write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return rows


def left_out(site: Site) -> FloatArray:
    """Errors of the logarithms of rows, each calibrated by the others, (N,)."""
    shipped = deviations()
    covariance = site.covariance(np.array([*(shipped.factors[name] for name in NAMES), shipped.residual]))
    covariance = covariance + MEASUREMENT**2 * np.eye(len(site.off))
    inverse = np.linalg.inv(covariance)
    # Of a normal distribution, what is left of a part when it is predicted from all others.
    return np.asarray((inverse @ site.off) / np.diag(inverse))
