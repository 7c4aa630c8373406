"""What performance models would pass over without a word: see the two functions."""

import difflib
from collections.abc import Iterator, Sequence

from models.performance.iteration.coefficients import Calibration
from stowplan.errors import Issue, Severity, pointer_of
from topology.cluster import GpuType
from topology.gpu_catalogue import known_product

# Stated peaks are rounded, and boards of one product clock differently.
_SAME_PEAK = 0.2
_TFLOPS = 1e12
# With sparsity, which nobody trains with, 16 bits have the peaks that 8 bits have without.
_NARROW = ("fp8", "fp4")


def peak_warnings(gpu_types: Sequence[GpuType], pointer: str) -> Iterator[Issue]:
    """Types that are named after a product of the catalogue, and state a peak that it has at no precision.

    The name decides, see `whitebox`.
    """
    for k, kind in enumerate(gpu_types):
        product = known_product(kind.name)
        if product is None:
            continue
        peaks = {name: peak for name, peak in product.peak_flops_per_s.items() if name not in _NARROW}
        if any(abs(kind.peak_flops_per_s / peak - 1.0) <= _SAME_PEAK for peak in peaks.values()):
            continue
        own = ", ".join(f"{peak / _TFLOPS:g} in {precision}" for precision, peak in peaks.items())
        yield Issue(
            code="peak_not_used",
            pointer=f"{pointer}{pointer_of(k, 'peak_flops_per_s')}",
            detail=f"is {kind.peak_flops_per_s / _TFLOPS:g} TFLOP/s, which {product.name} has at no precision ({own}); "
            "for jobs with a model the name decides: give the type another name to plan with the stated peak",
            severity=Severity.WARNING,
        )


def calibration_warnings(calibration: Calibration, gpu_types: Sequence[GpuType], pointer: str) -> Iterator[Issue]:
    """Coefficients of GPUs that neither the types nor the catalogue know: nothing can be scaled from them."""
    known = {kind.name.lower() for kind in gpu_types}
    for name in calibration.gpus:
        if name.lower() in known or known_product(name) is not None:
            continue
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        yield Issue(
            code="calibration_not_used",
            pointer=f"{pointer}{pointer_of('gpus', name)}",
            detail=f"no GPU type is called {name!r}, nor a product of the catalogue; {hint}these coefficients are not "
            "used",
            severity=Severity.WARNING,
        )
