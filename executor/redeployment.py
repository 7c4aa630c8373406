"""Which parts of a training's state move from the ranks of one plan to those of the next, and which stay.

State is what `executor.trainer.native.checkpoint` stores: rectangles of whole parameters and of their moments. A rank
of the next plan keeps what the rank in its place (on the same GPU) has, and gets every other element once, from a rank
that has it: so no more moves than must, whatever the two plans are (Suika, section 3.3, where whole layers move).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors

# Parts of different tensors lie one behind the other from multiples of so many bytes on.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Region:
    """A rectangle of a tensor: rows `top` to `bottom`, columns `left` to `right`, without the last ones."""

    tensor: str
    top: int
    bottom: int
    left: int
    right: int

    def __post_init__(self) -> None:
        if not (0 <= self.top < self.bottom and 0 <= self.left < self.right):
            raise InputError(f"{self} has no element; bottom must be beyond top, right beyond left, none below 0")

    @property
    def size(self) -> int:
        """Number of elements."""
        return (self.bottom - self.top) * (self.right - self.left)

    def common(self, other: "Region") -> "Region | None":
        """What is in both; None where nothing is."""
        top, bottom = max(self.top, other.top), min(self.bottom, other.bottom)
        left, right = max(self.left, other.left), min(self.right, other.right)
        if self.tensor != other.tensor or top >= bottom or left >= right:
            return None
        return Region(tensor=self.tensor, top=top, bottom=bottom, left=left, right=right)

    def without(self, part: "Region") -> Iterator["Region"]:
        """What is left without a part of it: above, below, and to both sides."""
        rims = (
            (self.top, part.top, self.left, self.right),
            (part.bottom, self.bottom, self.left, self.right),
            (part.top, part.bottom, self.left, part.left),
            (part.top, part.bottom, part.right, self.right),
        )
        for top, bottom, left, right in rims:
            if top < bottom and left < right:
                yield Region(tensor=self.tensor, top=top, bottom=bottom, left=left, right=right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A region that rank `target` of the next plan gets from rank `source` of the present one; `stays`: it is the rank
    in whose place it is."""

    source: int
    target: int
    region: Region
    stays: bool


def transfers(
    held: Sequence[Sequence[Region]],
    needed: Sequence[Sequence[Region]],
    places: Sequence[int | None],
    near: Sequence[Collection[int]] = (),
) -> tuple[Transfer, ...]:
    """Transfers after which every rank of the next plan has what it needs, each element once.

    Of several ranks that have a region, one on the same host sends it, and of these the one that has sent least so far.

    Parameters
    ----------
    held
        Of every rank of the present plan.
    needed
        Of every rank of the next plan; the regions of a rank have no element in common.
    places
        Of every rank of the next plan: the rank of the present plan on the same GPU, None where there is none.
    near
        Of every rank of the next plan: the ranks of the present plan on its host; empty: nothing is known of hosts.

    Raises
    ------
    InputError
        When nobody has a region that a rank needs.
    """
    holders: dict[str, list[tuple[int, Region]]] = {}
    for rank, regions in enumerate(held):
        for region in regions:
            holders.setdefault(region.tensor, []).append((rank, region))
    sent = [0] * len(held)
    found: list[Transfer] = []
    missing: list[Issue] = []
    for target, (regions, place) in enumerate(zip(needed, places, strict=True)):
        for k, region in enumerate(regions):
            left = [region]
            # What stays comes first; of the others' loads the ones before this region count.
            nearest = sorted(
                (rank != place, bool(near) and rank not in near[target], sent[rank], rank, has)
                for rank, has in holders.get(region.tensor, ())
            )
            for moves, source, has in ((moves, rank, has) for moves, _, _, rank, has in nearest):
                taken, left = _split(left, has)
                found += (Transfer(source=source, target=target, region=part, stays=not moves) for part in taken)
                sent[source] += moves * sum(part.size for part in taken)
            missing += (_missing(target, k, part) for part in left)
    raise_for_errors(missing, "redeployment")
    return tuple(found)


def chunks(region: Region, max_size: int) -> Iterator[Region]:
    """Parts of a region of at most so many elements, in the order of its rows: what is on its way at a time."""
    width = min(region.right - region.left, max_size)
    height = max(1, max_size // (region.right - region.left))
    for top in range(region.top, region.bottom, height):
        for left in range(region.left, region.right, width):
            bottom, right = min(top + height, region.bottom), min(left + width, region.right)
            yield Region(tensor=region.tensor, top=top, bottom=bottom, left=left, right=right)


def batches(wanted: Iterable[tuple[Region, int]], max_bytes: int) -> Iterator[tuple[tuple[Region, int], ...]]:
    """Regions, each with the bytes of an element, as parts that travel together.

    Returns
    -------
        Of every batch, which has at most `max_bytes`: its parts, each with the byte at which it begins.
    """
    batch: list[tuple[Region, int]] = []
    end = 0
    for region, element_bytes in wanted:
        for part in chunks(region, max_bytes // element_bytes):
            size = part.size * element_bytes
            if end + size > max_bytes:
                yield tuple(batch)
                batch, end = [], 0
            batch.append((part, end))
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
    if batch:
        yield tuple(batch)


def _split(parts: Iterable[Region], has: Region) -> tuple[list[Region], list[Region]]:
    """What a region has of some parts, and what is left of them."""
    taken: list[Region] = []
    left: list[Region] = []
    for part in parts:
        common = part.common(has)
        if common is None:
            left.append(part)
        else:
            taken.append(common)
            left += part.without(common)
    return taken, left


def _missing(target: int, index: int, part: Region) -> Issue:
    detail = (
        f"rows {part.top} to {part.bottom}, columns {part.left} to {part.right} of {part.tensor} are with no rank of "
        "the present plan; one must have them"
    )
    return Issue(code="missing_state", pointer=pointer_of("needed", target, index), detail=detail)
