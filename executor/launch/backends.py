"""All launch backends by name. Light: what a backend needs is loaded when ranks are started by it."""

from collections.abc import Mapping
from pkgutil import resolve_name

from executor.launch.base import LaunchBackend

# Name -> `module:class`; called without arguments, it makes a `LaunchBackend` of that name.
BACKENDS: Mapping[str, str] = {
    "local": "executor.launch.local:LocalBackend",
    "ssh": "executor.launch.ssh:SshBackend",
    "slurm": "executor.launch.slurm:SlurmBackend",
    "kubernetes": "executor.launch.kubernetes:KubernetesBackend",
}


def launch_backend(name: str) -> LaunchBackend:
    """Make the backend of this name."""
    backend: LaunchBackend = resolve_name(BACKENDS[name])()
    return backend
