"""From the GPUs that a request names, by type and number, to offers of nodes or of virtual ones."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.parallelism.offers import free_gpus, offers_of
from models.parallelism.request import Offer
from models.wording import counted
from stowplan.errors import InputError, Issue, pointer_of
from topology.cluster import Cluster, GpuType
from topology.gpu_catalogue import find_product, gpu_type_of

_GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGpus:
    """GPUs of one type that a job may get.

    Their numbers are `counts`, or `min_gpus`, `max_gpus` and every power of two between them; neither: what the degrees
    need. `gpus_per_node` None: as on the type's usual node.
    """

    gpu_type: str
    counts: tuple[int, ...] | None = None
    min_gpus: int | None = None
    max_gpus: int | None = None
    gpus_per_node: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTypes:
    """GPU types that a request may name: its `own`, and, without a cluster, those of the catalogue.

    `precision`: that of the peak performance of a type from the catalogue.
    """

    own: Mapping[str, GpuType]
    precision: str
    is_cluster: bool

    def find(self, name: str) -> tuple[GpuType, int]:
        """Type of this name, and GPUs of its usual node.

        Raises
        ------
        InputError
            When it is not known; the detail gives near matches.
        """
        if name in self.own:
            return self.own[name], _GPUS_PER_NODE
        if self.is_cluster:
            near = difflib.get_close_matches(name, self.own, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(
                f"no GPU type of the cluster is called {name!r}; {hint}known: {', '.join(sorted(self.own))}"
            )
        product = find_product(name)
        return gpu_type_of(product, self.precision), product.gpus_per_node

    def named(self, name: str, pointer: str, issues: list[Issue]) -> tuple[GpuType, int] | None:
        """What `find` gives; when the name is not known, None and an issue at `pointer`."""
        try:
            return self.find(name)
        except InputError as error:
            issues.append(Issue(code="unknown_gpu_type", pointer=pointer, detail=error.detail))
            return None


def wanted_offers(
    wanted: Sequence[WantedGpus], types: NamedTypes, cluster: Cluster | None, num_gpus: int | None, issues: list[Issue]
) -> tuple[Offer, ...]:
    """Offer the GPUs that are wanted: free ones of the cluster, or, without one, those of virtual nodes.

    Parameters
    ----------
    num_gpus
        How many given degrees need; None: a plan is searched for.
    issues
        Gets what is wrong; pointers are relative to `wanted`.
    """
    offers: list[Offer] = []
    seen: set[str] = set()
    for k, one in enumerate(wanted):
        found = types.named(one.gpu_type, pointer_of(k, "gpu_type"), issues)
        if found is None:
            continue
        kind, usual_size = found
        if kind.name in seen:
            detail = f"{kind.name!r} is listed before"
            issues.append(Issue(code="listed_twice", pointer=pointer_of(k, "gpu_type"), detail=detail))
        seen.add(kind.name)
        counts = _counts(k, one, num_gpus, issues)
        if counts and cluster is None:
            offers.append(Offer(gpu_type=kind, gpus_per_node=one.gpus_per_node or usual_size, counts=counts))
        elif counts and cluster is not None:
            free = offers_of(cluster, free_gpus(cluster), {kind.name: counts})
            if not free:
                detail = f"the cluster has no free {kind.name!r}"
                issues.append(Issue(code="no_free_gpus", pointer=pointer_of(k), detail=detail))
            offers += free
    return tuple(offers)


def free_offers(cluster: Cluster, num_gpus: int | None, issues: list[Issue]) -> tuple[Offer, ...]:
    """Offer all free GPUs of a cluster, type by type; arguments as above, pointers relative to the cluster."""
    counts = None if num_gpus is None else {kind.name: (num_gpus,) for kind in cluster.gpu_types}
    offers = offers_of(cluster, free_gpus(cluster), counts)
    if not offers:
        issues.append(Issue(code="no_free_gpus", pointer="/nodes", detail="no node that is up has a free GPU"))
    return offers


def _counts(k: int, wanted: WantedGpus, num_gpus: int | None, issues: list[Issue]) -> tuple[int, ...]:
    """Numbers of GPUs, ascending."""
    if num_gpus is not None and wanted.counts is None and wanted.min_gpus is None:
        return (num_gpus,)
    if wanted.min_gpus is not None and wanted.max_gpus is not None:
        low, high = wanted.min_gpus, wanted.max_gpus
        counts = {low, high} | {1 << e for e in range(high.bit_length()) if low <= 1 << e <= high}
    else:
        counts = set(wanted.counts or ())
    pointer = pointer_of(k, "counts")
    if not counts:
        issues.append(Issue(code="missing_field", pointer=pointer, detail="is missing; say how many GPUs"))
    if num_gpus is not None and counts != {num_gpus}:
        detail = f"the degrees need {counted(num_gpus, 'GPU')}, not {sorted(counts)}"
        issues.append(Issue(code="wrong_count", pointer=pointer, detail=detail))
    return tuple(sorted(counts))
