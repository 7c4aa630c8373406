"""Multi-replica throughput on GPU types where synchronisation has never been seen (Sia section 3.2, Eq. 1).

    est-xput_B(N) = xput_B(1) / xput_A(1) * xput_A(N)

The paper leaves open at which batch. Here all four stand at the same local batch m and accumulation steps s: those
that the job would use on B, so that B's memory holds them; A's model is evaluated there even where A's memory would
not. Then xput_X(1) = m / T_grad,X(m), and Eq. 1 says that B's iteration is A's, scaled by the ratio of gradient times:

    T_iter,B = T_iter,A T_grad,B / T_grad,A

N counts replicas (GPUs for plain data parallelism), inside one node exactly when B's configuration has one node.
Where no type has been seen with several replicas, the first assumption of section 3.2 holds: perfect scaling,
T_sync = 0.
"""

import math

from models.performance.goodput.spec import GoodputModel, ThroughputParameters, TypeProfile

# Any parameters without synchronisation scale perfectly.
PERFECT_SCALING = ThroughputParameters(
    alpha_c=1.0, beta_c=0.0, alpha_r=0.0, beta_r=0.0, alpha_n=0.0, beta_n=0.0, gamma=1.0
)


def scaling_parameters(model: GoodputModel, gpu_type: str) -> ThroughputParameters:
    """Parameters whose ratio of T_iter to T_grad holds on `gpu_type`: its own, those of type A, or perfect scaling.

    A is the type with multi-replica data whose gradient time is closest to that of `gpu_type` (as a ratio, at the
    largest local batch that fits both): the closer the compute, the closer its ratio to communication. Ties go to
    the first name.
    """
    profile = model.profiles[gpu_type]
    if not profile.single_gpu_only:
        return profile.parameters
    candidates = [(name, other) for name, other in sorted(model.profiles.items()) if not other.single_gpu_only]
    if not candidates:
        return PERFECT_SCALING
    _, nearest = min(candidates, key=lambda candidate: _distance(profile, candidate[1]))
    return nearest.parameters


def _distance(one: TypeProfile, other: TypeProfile) -> float:
    """|log| of the ratio of gradient times at the largest local batch that fits both."""
    local_batch = min(one.max_local_batch, other.max_local_batch)
    times_s = [p.parameters.alpha_c + p.parameters.beta_c * local_batch for p in (one, other)]
    return abs(math.log(times_s[0] / times_s[1]))
