"""White-box sizes of the mean layer (Suika A.4.1), embedding and head included; activations are per sample."""

from models.performance.iteration.coefficients import SizeCoefficients
from models.performance.iteration.profile import ModelProfile
from stowplan.arrays import FloatVector


def size_coefficients(profile: ModelProfile) -> SizeCoefficients:
    """Sizes that follow from the model."""
    prefix, num_layers = profile.prefix, profile.num_layers
    parameters = float(prefix.parameters[-1]) / num_layers
    return SizeCoefficients(
        activation_bytes=mean_activation_bytes(profile),
        gradient_bytes=profile.gradient_bytes * parameters,
        parameter_bytes=profile.parameter_bytes * parameters,
        optimizer_bytes=profile.optimizer_bytes * parameters,
        partitioned_activation_bytes=float(prefix.partitioned_activation_bytes[-1]) / num_layers,
        replicated_activation_bytes=float(prefix.replicated_activation_bytes[-1]) / num_layers,
    )


def mean_activation_bytes(profile: ModelProfile) -> float:
    """k_activ: what one of two tensor-parallel all-reduces carries, or a layer hands on where there are none."""
    all_reduced = float(profile.prefix.tensor_parallel_bytes[-1]) / 2.0
    handed_on = float(profile.prefix.boundary_bytes.sum())
    return (all_reduced or handed_on) / profile.num_layers


def boundary_bytes(profile: ModelProfile, sizes: SizeCoefficients) -> FloatVector:
    """What every layer hands on, (L,): as the model says, scaled to a k_activ that was measured."""
    white = mean_activation_bytes(profile)
    return profile.prefix.boundary_bytes * (sizes.activation_bytes / white if white > 0 else 1.0)
