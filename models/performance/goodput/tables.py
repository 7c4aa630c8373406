"""Look-up of table entries: the value for exactly these GPUs, on exactly these nodes before on any."""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from models.configurations import ConfigurationSet
from models.performance.goodput.listed import Layout, Listed
from stowplan.arrays import FloatArray, IntVector

_Key = tuple[str, int, int | None]


class TableLookup:
    """Finds the configurations that an entry of a table speaks about."""

    def __init__(self, configurations: ConfigurationSet) -> None:
        self._named: dict[_Key, list[int]] = {}
        names = [configurations.gpu_types[t] for t in configurations.type_index.tolist()]
        shapes = zip(names, configurations.num_gpus.tolist(), configurations.num_nodes.tolist(), strict=True)
        for c, (name, num_gpus, num_nodes) in enumerate(shapes):
            self._named.setdefault((name, num_gpus, None), []).append(c)
            self._named.setdefault((name, num_gpus, num_nodes), []).append(c)
        # Columns of every key, one key after the other; the last key stands for entries that name nothing.
        self._number = {key: k for k, key in enumerate(self._named)}
        self._columns = np.fromiter(chain.from_iterable(self._named.values()), dtype=np.int64)
        self._size = np.array([*map(len, self._named.values()), 0], dtype=np.int64)
        self._first = np.cumsum(self._size) - self._size
        self._any_nodes = np.array([*(num_nodes is None for _, _, num_nodes in self._named), True], dtype=np.bool_)

    def fill(self, goodput: FloatArray, rows: IntVector, tables: Sequence[Listed]) -> None:
        """Write the values of each table into its row of `goodput` (J, C)."""
        if not tables:
            return
        numbers_of = {layout: self._numbers(layout) for layout in {table.layout for table in tables}}
        numbers = np.concatenate([numbers_of[table.layout] for table in tables])
        values = np.fromiter(chain.from_iterable([table.values for table in tables]), np.float64, numbers.size)
        row = np.repeat(rows, [len(table.values) for table in tables])
        # Entries for any number of nodes first: those for exact ones overrule them.
        for general in (True, False):
            chosen = np.flatnonzero(self._any_nodes[numbers] == general)
            size = self._size[numbers[chosen]]
            offset = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
            columns = self._columns[np.repeat(self._first[numbers[chosen]], size) + offset]
            goodput[np.repeat(row[chosen], size), columns] = np.repeat(values[chosen], size)

    def _numbers(self, layout: Layout) -> IntVector:
        """Numbers (E,) of the keys of the entries."""
        number, unknown = self._number.get, len(self._number)
        return np.array([number(shape, unknown) for shape in layout.shapes], dtype=np.int64)
