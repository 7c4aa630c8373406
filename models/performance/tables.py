"""Look-up of table entries: the value for exactly these GPUs, on exactly these nodes before on any."""

from models.configurations import ConfigurationSet
from models.performance.spec import TableEntry


class TableLookup:
    """Finds the configurations that an entry of a table speaks about."""

    def __init__(self, configurations: ConfigurationSet) -> None:
        self._any_nodes: dict[tuple[str, int], list[int]] = {}
        self._exact: dict[tuple[str, int, int], list[int]] = {}
        names = [configurations.gpu_types[t] for t in configurations.type_index.tolist()]
        shapes = zip(names, configurations.num_gpus.tolist(), configurations.num_nodes.tolist(), strict=True)
        for c, (name, num_gpus, num_nodes) in enumerate(shapes):
            self._any_nodes.setdefault((name, num_gpus), []).append(c)
            self._exact.setdefault((name, num_gpus, num_nodes), []).append(c)

    def values(self, entries: tuple[TableEntry, ...]) -> dict[int, float]:
        """Configuration index -> value, for the configurations that the entries name."""
        general: dict[int, float] = {}
        exact: dict[int, float] = {}
        for entry in entries:
            if entry.num_nodes is None:
                for c in self._any_nodes.get((entry.gpu_type, entry.num_gpus), ()):
                    general[c] = entry.value
            else:
                for c in self._exact.get((entry.gpu_type, entry.num_gpus, entry.num_nodes), ()):
                    exact[c] = entry.value
        return general | exact
