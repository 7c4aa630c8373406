"""What jobs have measured of an application, and the throughput models fitted to it (Sia section 3.2)."""

from collections.abc import Mapping

import numpy as np

from executor.simulation.application import MeasuredApplication
from executor.simulation.truth import Seen
from models.performance.goodput.fit import fit_parameters
from models.performance.goodput.spec import Observation, ThroughputParameters, TypeProfile
from models.performance.goodput.throughput import gradient_time_s, iteration_time_s, slowed

# What a model says this exactly teaches it nothing. A fit takes hundredths of a second, and a job whose batch changes
# with every epoch would have a hundred of them.
_KNOWN_WITHIN = 0.02


# Of one application, by what was seen on a type.
Fits = dict[frozenset[Seen], ThroughputParameters]


class Knowledge:
    """Of one application. `fits` are those that were made already, by whomever.

    profiled: steps on one GPU of each type are known from the start. Else a type on which nobody has run is taken for
    the first on which somebody has, faster by the ratio of samples per second on one GPU at their largest batches.
    """

    def __init__(self, application: MeasuredApplication, fits: Fits, *, profiled: bool) -> None:
        self._application = application
        self._fits = fits
        self._observed: dict[str, dict[Seen, Observation]] = {}
        self._fitted: dict[str, ThroughputParameters] = {}
        self._profiles: dict[str, TypeProfile] | None = None
        self.max_replicas = 0
        if profiled:
            for gpu_type, steps in application.steps.items():
                alone = [step.local_batch for step in steps.measured.steps if step.gpus == (1,)]
                for local_batch in alone:
                    self._note(Seen(gpu_type=gpu_type, gpus=(1,), local_batch=local_batch))

    def parameters(self, gpu_type: str) -> ThroughputParameters | None:
        """Fitted to what was measured on a type; None where nothing was."""
        return self._fit(gpu_type) if gpu_type in self._observed else None

    def teaches(self, seen: Seen) -> bool:
        """Whether measuring this would change the model."""
        parameters = self.parameters(seen.gpu_type)
        if parameters is None or sum(seen.gpus) > self.max_replicas:
            return True
        if seen in self._observed[seen.gpu_type]:
            return False
        true = self._observation(seen)
        gradient_s = gradient_time_s(parameters.alpha_c, parameters.beta_c, seen.local_batch)
        step_s = iteration_time_s(
            parameters, true.num_nodes, true.num_replicas, seen.local_batch, 0, seen.bandwidth_fraction
        )
        errors = np.log([gradient_s / (true.step_time_s - true.sync_time_s), step_s / true.step_time_s])
        return bool(np.abs(errors).max() > _KNOWN_WITHIN)

    def learn(self, seen: Seen) -> None:
        """Note what was measured."""
        self._note(seen)
        self.max_replicas = max(self.max_replicas, sum(seen.gpus))

    def profiles(self) -> Mapping[str, TypeProfile]:
        """By GPU type, all of them once there is anything to go by."""
        if self._profiles is None:
            self._profiles = {}
            for gpu_type in self._application.steps if self._observed else ():
                self._profiles[gpu_type] = self._profile(gpu_type)
        return self._profiles

    def _fit(self, gpu_type: str) -> ThroughputParameters:
        """Whoever has seen the same has the same model."""
        if gpu_type not in self._fitted:
            seen = self._observed[gpu_type]
            key = frozenset(seen)
            if key not in self._fits:
                self._fits[key] = fit_parameters(list(seen.values()))
            self._fitted[gpu_type] = self._fits[key]
        return self._fitted[gpu_type]

    def _note(self, seen: Seen) -> None:
        self._observed.setdefault(seen.gpu_type, {})[seen] = self._observation(seen)
        self._fitted.pop(seen.gpu_type, None)
        self._profiles = None

    def _observation(self, seen: Seen) -> Observation:
        steps = self._application.steps[seen.gpu_type]
        batch = np.array([float(seen.local_batch)])
        step_s, sync_s = steps.times_s(seen.gpus, batch, seen.bandwidth_fraction)[:, 0]
        return Observation(
            gpu_type=seen.gpu_type,
            num_nodes=len(seen.gpus),
            num_replicas=sum(seen.gpus),
            local_batch=seen.local_batch,
            step_time_s=float(step_s),
            sync_time_s=float(sync_s),
            bandwidth_fraction=seen.bandwidth_fraction,
        )

    def _profile(self, gpu_type: str) -> TypeProfile:
        measured = self._application.steps[gpu_type].measured
        parameters = self.parameters(gpu_type)
        single = not self._has_synchronised(gpu_type)
        if parameters is None:
            # The other's synchronisation is scaled, too: what it adds to a step, relative to computing, stays.
            other = next(name for name in self._application.steps if name in self._observed)
            ratio = self._samples_per_s(other) / self._samples_per_s(gpu_type)
            parameters = slowed(self._fit(other), ratio)
        return TypeProfile(
            parameters=parameters,
            max_local_batch=measured.max_local_batch,
            min_local_batch=measured.min_local_batch,
            single_gpu_only=single,
        )

    def _has_synchronised(self, gpu_type: str) -> bool:
        """Whether several replicas were seen on a type."""
        return any(observation.num_replicas > 1 for observation in self._observed.get(gpu_type, {}).values())

    def _samples_per_s(self, gpu_type: str) -> float:
        """On one GPU, at the largest batch."""
        steps = self._application.steps[gpu_type]
        local_batch = steps.max_local_batch((1,))
        return local_batch / float(steps.times_s((1,), np.array([float(local_batch)]))[0, 0])
