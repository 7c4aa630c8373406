"""Where every node of a cluster sits in the picture: frames for the units of the fabric, boxes for nodes.

Pure geometry in points, y downwards. The size of one GPU cell is the only free length; all others follow from it,
and the largest cell is taken with which the cluster fits the page.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from api.figures.style import SMALL_SIZE, printable, text_width
from topology.cluster import Cluster, Node

LARGEST_CELL = 15.0
_SHRINK = 0.88
_ASPECT = 1.7
_WIDTH_SHARES = (0.4, 0.55, 0.7, 0.85, 1.0)
_SIDE_BY_SIDE = (1, 2, 3, 4)
_LEAF_ASPECTS = (0.4, 0.8, 1.7, 3.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes of one unit of the fabric, or of one GPU type within it.

    A group has either child groups or is a leaf that shows its nodes. `units` are the path prefixes that it
    stands for: several where a level divides nothing, none where it is a GPU type only. `sizes` are the GPU
    counts that occur among its nodes.
    """

    label: str
    units: tuple[tuple[str, ...], ...]
    nodes: tuple[Node, ...]
    sizes: tuple[int, ...]
    children: tuple["Group", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A drawn group; `strip` is the height of its label line (0: no room)."""

    group: Group
    depth: int
    x: float
    y: float
    width: float
    height: float
    strip: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBox:
    """A drawn node; its GPUs fill `columns` columns row by row."""

    node: Node
    x: float
    y: float
    width: float
    height: float
    columns: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Lengths that follow from the cell size; `node_strip` is the height of a node's label line (0: none)."""

    cell: float
    node_strip: float = 0.0

    @property
    def node_padding(self) -> float:
        """Distance from the border of a node to its cells."""
        return 0.15 * self.cell

    @property
    def node_gap(self) -> float:
        """Distance between nodes."""
        return 0.4 * self.cell

    @property
    def frame_padding(self) -> float:
        """Distance from a frame to what it holds, at the sides and below."""
        return 0.6 * self.cell

    @property
    def frame_gap(self) -> float:
        """Distance between frames."""
        return 0.8 * self.cell

    def frame_strip(self, depth: int) -> float:
        """Height of the label line of a frame."""
        if depth == 0:
            return min(11.0, 3.5 * self.cell)
        return 10.0 if self.cell >= 5.0 else 0.0

    def frame_top(self, depth: int) -> float:
        """Distance from the upper edge of a frame to what it holds."""
        strip = self.frame_strip(depth)
        return strip + 0.25 * self.cell if strip else self.frame_padding

    def node_size(self, num_gpus: int) -> tuple[float, float]:
        """Width and height of the box of a node, label included."""
        columns = cell_columns(num_gpus)
        rows = math.ceil(num_gpus / columns)
        padding = 2 * self.node_padding
        return columns * self.cell + padding, rows * self.cell + padding + self.node_strip


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The whole cluster within (0, 0) and (width, height)."""

    metrics: Metrics
    width: float
    height: float
    frames: tuple[Frame, ...]
    boxes: tuple[NodeBox, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A group with its size; `columns` of nodes when a leaf, else its children with their offsets."""

    group: Group
    width: float
    height: float
    columns: int = 0
    places: tuple[tuple[float, float, "_Block"], ...] = ()


def cell_columns(num_gpus: int) -> int:
    """GPUs of a node side by side: at most four, near a square for very large nodes."""
    return min(num_gpus, max(4, math.ceil(math.sqrt(num_gpus))))


def lay_out(cluster: Cluster, max_width: float, max_height: float) -> Layout:
    """Place all nodes with the largest cells that fit `max_width` x `max_height`."""
    groups = grouped(cluster)
    cell = LARGEST_CELL
    while _inked_area(cluster, Metrics(cell=cell)) > max_width * max_height:
        cell *= _SHRINK
    while True:
        metrics, labels = _with_node_labels(cluster, cell)
        fitting = [
            (_waste(cluster, metrics, width, height), number, places, width, height)
            for number, (places, width, height) in enumerate(_candidates(groups, metrics, max_width))
            if width <= max_width and height <= max_height
        ]
        if fitting:
            _, _, places, width, height = min(fitting, key=lambda candidate: candidate[:2])
            drawn = [item for x, y, block in places for item in _drawn(block, x, y, 0, metrics, labels)]
            return Layout(
                metrics=metrics,
                width=width,
                height=height,
                frames=tuple(item for item in drawn if isinstance(item, Frame)),
                boxes=tuple(item for item in drawn if isinstance(item, NodeBox)),
            )
        cell *= _SHRINK


def _waste(cluster: Cluster, metrics: Metrics, width: float, height: float) -> float:
    """What an arrangement costs: empty paper, and a shape far from that of a page."""
    return math.log(width * height / _inked_area(cluster, metrics)) + 0.5 * abs(math.log(width / height / _ASPECT))


def _inked_area(cluster: Cluster, metrics: Metrics) -> float:
    """Area of all node boxes."""
    return math.fsum(math.prod(metrics.node_size(node.num_gpus)) for node in cluster.nodes)


def grouped(cluster: Cluster) -> tuple[Group, ...]:
    """The top-level groups: tiers that divide nothing are passed over, several GPU types divide the finest units."""
    by_type = len({node.gpu_type for node in cluster.nodes}) > 1
    groups = _split(cluster, cluster.nodes, (), by_type)
    if not groups:
        return (_group(cluster.nodes[0].gpu_type, (), cluster.nodes),)
    while len(groups) == 1 and groups[0].children:
        groups = groups[0].children
    return groups


def natural_key(text: str) -> tuple[tuple[str, int], ...]:
    """Sort key under which `n2` comes before `n10`."""
    return tuple((letters, int(digits or -1)) for letters, digits in re.findall(r"(\D*)(\d*)", text))


def _split(cluster: Cluster, nodes: Sequence[Node], unit: tuple[str, ...], by_type: bool) -> tuple[Group, ...]:
    depth = len(unit)
    if depth == len(cluster.tiers):
        kinds = sorted({node.gpu_type for node in nodes}) if by_type else []
        return tuple(_group(kind, (), [node for node in nodes if node.gpu_type == kind]) for kind in kinds)
    members: dict[str, list[Node]] = {}
    for node in nodes:
        members.setdefault(node.path[depth], []).append(node)
    tier = cluster.tiers[depth].name
    groups = []
    for name in sorted(members, key=natural_key):
        label = name if name.lower().startswith(tier.lower()) else f"{tier} {name}"
        children = _split(cluster, members[name], (*unit, name), by_type)
        groups.append(_merged(_group(label, ((*unit, name),), members[name], children)))
    return tuple(groups)


def _group(
    label: str, units: tuple[tuple[str, ...], ...], nodes: Sequence[Node], children: tuple[Group, ...] = ()
) -> Group:
    sizes = tuple(sorted({node.num_gpus for node in nodes}))
    return Group(label=label, units=units, nodes=tuple(nodes), sizes=sizes, children=children)


def _merged(group: Group) -> Group:
    """The group without a level that divides nothing; both names stay readable."""
    if len(group.children) != 1:
        return group
    (child,) = group.children
    return replace(child, label=f"{group.label} · {child.label}", units=group.units + child.units)


def _with_node_labels(cluster: Cluster, cell: float) -> tuple[Metrics, dict[str, str]]:
    """Metrics with a line for node names if they fit and stay distinct when shortened."""
    bare = Metrics(cell=cell)
    if cell < 0.55 * LARGEST_CELL:
        return bare, {}
    room = {node.id: bare.node_size(node.num_gpus)[0] + 0.5 * bare.node_gap for node in cluster.nodes}
    labels = {node.id: _shortened(printable(node.id), room[node.id]) for node in cluster.nodes}
    if len(set(labels.values())) < len(labels):
        return bare, {}
    return Metrics(cell=cell, node_strip=8.0), labels


def _shortened(text: str, width: float) -> str:
    """`text` with an ellipsis in its middle, at most `width` wide; the start and end tell node names apart."""
    size = SMALL_SIZE - 1
    full = text_width(text, size)
    if full <= width:
        return text
    for kept in range(math.ceil(len(text) * width / full), 1, -1):
        shorter = text[: kept // 2] + "…" + text[-(kept - kept // 2) :]
        if text_width(shorter, size) <= width:
            return shorter
    return "…"


def _candidates(
    groups: Sequence[Group], metrics: Metrics, max_width: float
) -> Iterator[tuple[tuple[tuple[float, float, _Block], ...], float, float]]:
    """Arrangements to choose from: places of the top-level blocks, width and height."""
    nested = any(group.children for group in groups)
    for share in _WIDTH_SHARES:
        for abreast in _SIDE_BY_SIDE if nested else _SIDE_BY_SIDE[:1]:
            for aspect in _LEAF_ASPECTS:
                width = share * max_width
                inner = (width - (abreast - 1) * metrics.frame_gap) / abreast
                blocks = [_block(group, 0, metrics, inner, aspect) for group in groups]
                yield _shelves(blocks, width, metrics.frame_gap)


def _block(group: Group, depth: int, metrics: Metrics, max_width: float, aspect: float) -> _Block:
    strip, top, padding = metrics.frame_strip(depth), metrics.frame_top(depth), metrics.frame_padding
    inner = max_width - 2 * padding
    if group.children:
        blocks = [_block(child, depth + 1, metrics, inner, aspect) for child in group.children]
        places, width, height = _shelves(blocks, inner, metrics.frame_gap)
        shifted = tuple((x + padding, y + top, block) for x, y, block in places)
        return _Block(group=group, width=width + 2 * padding, height=height + top + padding, places=shifted)
    slot = _slot(group, metrics)
    width, height, columns = _node_grid(len(group.nodes), slot, metrics.node_gap, inner, aspect)
    if strip:
        width = max(width, min(text_width(group.label, SMALL_SIZE), 1.6 * width))
    return _Block(group=group, width=width + 2 * padding, height=height + top + padding, columns=columns)


@lru_cache(maxsize=8192)
def _node_grid(
    num_nodes: int, slot: tuple[float, float], gap: float, max_width: float, aspect: float
) -> tuple[float, float, int]:
    """Width, height and columns of a grid of nodes: near the wanted shape with few empty places."""

    def size(columns: int) -> tuple[float, float]:
        rows = math.ceil(num_nodes / columns)
        return columns * (slot[0] + gap) - gap, rows * (slot[1] + gap) - gap

    def cost(columns: int) -> float:
        width, height = size(columns)
        return abs(math.log(width / height / aspect)) + 2 * (-num_nodes % columns) / num_nodes

    most = max(1, min(num_nodes, int((max_width + gap) / (slot[0] + gap))))
    columns = min(range(1, most + 1), key=cost)
    return *size(columns), columns


def _slot(group: Group, metrics: Metrics) -> tuple[float, float]:
    """Width and height that the largest node of the group needs."""
    widths, heights = zip(*(metrics.node_size(size) for size in group.sizes), strict=True)
    return max(widths), max(heights)


def _shelves(
    blocks: Sequence[_Block], max_width: float, gap: float
) -> tuple[tuple[tuple[float, float, _Block], ...], float, float]:
    """Blocks from left to right in rows; all blocks of a row get the height of the tallest."""
    rows: list[list[_Block]] = []
    room = -math.inf
    for block in blocks:
        if block.width > room:
            rows.append([])
            room = max_width
        rows[-1].append(block)
        room -= block.width + gap
    places: list[tuple[float, float, _Block]] = []
    width = y = 0.0
    for row in rows:
        tallest = max(block.height for block in row)
        x = 0.0
        for block in row:
            places.append((x, y, replace(block, height=tallest)))
            x += block.width + gap
        width = max(width, x - gap)
        y += tallest + gap
    return tuple(places), width, y - gap


def _drawn(
    block: _Block, x: float, y: float, depth: int, metrics: Metrics, labels: dict[str, str]
) -> Iterator[Frame | NodeBox]:
    """The frames and node boxes of a block placed at (x, y)."""
    strip = metrics.frame_strip(depth)
    yield Frame(group=block.group, depth=depth, x=x, y=y, width=block.width, height=block.height, strip=strip)
    for dx, dy, child in block.places:
        yield from _drawn(child, x + dx, y + dy, depth + 1, metrics, labels)
    if block.places:
        return
    slot_width, slot_height = _slot(block.group, metrics)
    for k, node in enumerate(block.group.nodes):
        row, column = divmod(k, block.columns)
        width, height = metrics.node_size(node.num_gpus)
        yield NodeBox(
            node=node,
            x=x + metrics.frame_padding + column * (slot_width + metrics.node_gap),
            y=y + metrics.frame_top(depth) + row * (slot_height + metrics.node_gap),
            width=width,
            height=height,
            columns=cell_columns(node.num_gpus),
            label=labels.get(node.id, ""),
        )
