"""Calibrations of common systems, from the published rows that are of them: files in `api/calibrations`, with what they
were fitted to and how they predict rows that are left out.

Systems of which no row, or just one, was published (H200, GB200) have none: the priors hold. Nor has one whose rows do
not say more than the priors, which were fitted to the same rows: where those that are left out are predicted worse by
more than a percent.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

import api
from api.convert.job_model import calibration_to_document
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
    }
)


def write_systems(timed: Sequence[Case]) -> list[dict[str, object]]:
    """Write all files; a row of figures for each."""
    FOLDER.mkdir(exist_ok=True)
    rows: list[dict[str, object]] = []
    for name, of_system in SYSTEMS.items():
        own = [case for case in timed if of_system(case)]
        found = calibrate_plans(
            [
                MeasuredTime(plan=case.plan, iteration_s=case.known_s / case.scale, model_of=RowModel(case, None))
                for case in own
            ]
        )
        site = linear_rows(name, own, None)
        before, after = (100 * float(np.median(np.abs(np.expm1(off)))) for off in (site.off, left_out(site)))
        source = (
            f"Fitted to {len(own)} published iteration times of {', '.join(sorted({case.source for case in own}))} by "
            f"python -m benchmarks calibrated-steps --fit. Median error {before:.1f} %; of rows that are left out, "
            f"calibrated by the others, {after:.1f} %."
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
