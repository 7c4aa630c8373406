"""All launch backends by name."""

from collections.abc import Callable, Mapping

from executor.launch.base import LaunchBackend
from executor.launch.kubernetes import KubernetesBackend
from executor.launch.local import LocalBackend
from executor.launch.slurm import SlurmBackend
from executor.launch.ssh import SshBackend

BACKENDS: Mapping[str, Callable[[], LaunchBackend]] = {
    backend.name: backend for backend in (LocalBackend, SshBackend, SlurmBackend, KubernetesBackend)
}
