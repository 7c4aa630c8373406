"""GPUs that jobs will need which are still to come, for the check: recomputed by the rules in `arrivals`."""

from collections.abc import Iterable, Mapping
from statistics import median

from models.allocation.horizon.outlook import Shape

_MOST = 0.5
_S_PER_HOUR = 3600.0


class Arrivals:
    """Of jobs like those that are there. jobs: seconds that are left by shape, and GPU seconds that they have had;
    most: GPUs by type."""

    def __init__(
        self, per_hour: float, jobs: Iterable[tuple[Mapping[Shape, float], float]], most: Mapping[str, float]
    ) -> None:
        known = list(jobs)
        self._length_s: dict[str, float] = {}
        self._gpus: dict[str, float] = {}
        demand: dict[str, float] = {}
        for gpu_type in most if per_hour > 0 else ():
            whole_gpu_s, whole_s = [], []
            for seconds, attained_gpu_s in known:
                able = {shape: time_s for shape, time_s in seconds.items() if shape[0] == gpu_type}
                least_gpu_s = min((shape[2] * time_s for shape, time_s in able.items()), default=0.0)
                if least_gpu_s > 0:
                    whole_gpu_s.append(least_gpu_s + attained_gpu_s)
                    whole_s.append(min(able.values()) * (1.0 + attained_gpu_s / least_gpu_s))
            if whole_s:
                demand[gpu_type], self._length_s[gpu_type] = median(whole_gpu_s), median(whole_s)
        num_gpus = max(1.0, sum(most[gpu_type] for gpu_type in demand))
        for gpu_type, gpu_s in demand.items():
            self._gpus[gpu_type] = per_hour / _S_PER_HOUR * most[gpu_type] / num_gpus * gpu_s

    def mean(self, gpu_type: str, first_s: float, last_s: float, there: float) -> float:
        """Of a type on average over an interval in which there are so many."""
        length_s = self._length_s.get(gpu_type, 0.0)
        if length_s == 0:
            return 0.0
        rising_s = max(0.0, min(last_s, length_s) - first_s)
        rising = rising_s * (first_s + 0.5 * rising_s) / length_s
        steady_s = max(0.0, last_s - max(first_s, length_s))
        return min(_MOST * there, self._gpus[gpu_type] * (rising + steady_s) / (last_s - first_s))
