"""What clients of the service may choose of a launch: what the operator's settings name.

The command line needs none of this: who deploys with it runs everything as himself.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from api.common.settings import Settings
from api.deployments.choice import is_secret, usual_python
from api.schemas.deployment import DeploymentBody, PlanChoice
from executor.deployment import Deployment
from executor.launch.backends import launch_backend
from executor.launch.remote_shell import RemoteShellBackend
from executor.rank_table import hosts_of
from stowplan.errors import InputError, Issue, pointer_of


def refuse_forbidden(body: DeploymentBody, deployment: Deployment, settings: Settings) -> None:
    """Raise InputError when a request names an interpreter, variable, program or host that the settings do not."""
    _refuse(
        *_interpreter(body, settings),
        *_variables(body, settings),
        *_programs(body, settings),
        *_hosts(body, deployment, settings),
    )


def refuse_forbidden_files(body: DeploymentBody, settings: Settings) -> None:
    """Raise InputError when a request names a file outside of the folders of the settings; before any is read."""
    training = body.training
    paths = {"/training/token_file": training.token_file, "/training/initial_weights": training.initial_weights}
    paths |= {f"/training/data/sources/{k}/path": source.path for k, source in enumerate(training.data.sources)}
    _refuse(*(issue for pointer, path in paths.items() for issue in _file(pointer, path, settings)))


def refuse_foreign_hosts(asked: PlanChoice, deployment: Deployment, settings: Settings) -> None:
    """Raise InputError when a plan would have us reach a host that the settings do not name."""
    _refuse(*_hosts(asked, deployment, settings))


def _refuse(*found: Issue) -> None:
    if found:
        raise InputError("the settings of this service do not allow that launch", found)


def _interpreter(body: DeploymentBody, settings: Settings) -> Iterator[Issue]:
    python, usual = body.launch.python, usual_python(body.launch.backend)
    if python not in (None, usual, *settings.launch_pythons.split(os.pathsep)):
        detail = f"is {python!r}; leave it out for {usual}, or have the operator name it in STOWPLAN_LAUNCH_PYTHONS"
        yield _forbidden("/launch/python", detail)


def _variables(body: DeploymentBody, settings: Settings) -> Iterator[Issue]:
    allowed = _pattern(settings.launch_variables)
    for name in body.launch.environment:
        pointer = pointer_of("launch", "environment", name)
        if not allowed.fullmatch(name):
            detail = f"may not be set; STOWPLAN_LAUNCH_VARIABLES allows {settings.launch_variables or 'none'}"
            yield _forbidden(pointer, detail)
        elif is_secret(name):
            detail = "would be kept with the deployment; name it in launch.secrets, with a file in STOWPLAN_SECRETS"
            yield _forbidden(pointer, detail)


def _file(pointer: str, given: str | None, settings: Settings) -> Iterator[Issue]:
    """A fault where a path, with or without the endings of a dataset, leads out of the folders of the settings."""
    if given is None:
        return
    folders = settings.data_folders or settings.deployments
    # Where links lead, so that none of them leads out of the folders.
    paths = [Path(os.path.realpath(given + ending)) for ending in ("", ".bin", ".idx")]
    roots = [os.path.realpath(folder) for folder in folders.split(os.pathsep) if folder]
    if not Path(given).is_absolute() or not all(any(path.is_relative_to(root) for root in roots) for path in paths):
        detail = f"is {given!r}; must be an absolute path below {folders} (STOWPLAN_DATA_FOLDERS)"
        yield _forbidden(pointer, detail)


def _programs(body: DeploymentBody, settings: Settings) -> Iterator[Issue]:
    """What is run beside our trainer: a program by its first words, layers and images by their whole name."""
    command, hook, image = body.launch.command, body.training.layers_hook, body.launch.image
    allowed = [entry.split() for entry in _entries(settings.launch_commands)]
    if command is not None and not any(list(command[: len(words)]) == words for words in allowed):
        detail = f"is {shlex.join(command)!r}; STOWPLAN_LAUNCH_COMMANDS allows {settings.launch_commands or 'none'}"
        yield _forbidden("/launch/command", detail)
    if hook is not None and hook not in _entries(settings.layers_hooks):
        detail = f"is {hook!r}; STOWPLAN_LAYERS_HOOKS allows {settings.layers_hooks or 'none'}"
        yield _forbidden("/training/layers_hook", detail)
    if image is not None and image not in _entries(settings.launch_images):
        detail = f"is {image!r}; STOWPLAN_LAUNCH_IMAGES allows {settings.launch_images or 'none'}"
        yield _forbidden("/launch/image", detail)


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _hosts(asked: PlanChoice, deployment: Deployment, settings: Settings) -> Iterator[Issue]:
    """Hosts that we would log in to, or at whose address the ranks would meet."""
    launch, allowed = deployment.launch, _pattern(settings.launch_hosts)
    logs_in = isinstance(launch_backend(launch.backend), RemoteShellBackend)
    for node in (*hosts_of(deployment.ranks()), *launch.spares):
        address = launch.addresses.get(node, node)
        if (logs_in or node in launch.addresses) and not allowed.fullmatch(address):
            known = pointer_of("launch", "addresses", node) if node in launch.addresses else None
            detail = f"names the host {address!r}; STOWPLAN_LAUNCH_HOSTS allows {settings.launch_hosts or 'none'}"
            yield _forbidden(known or ("/plan_id" if asked.plan is None else "/plan"), detail)


def _forbidden(pointer: str, detail: str) -> Issue:
    return Issue(code="not_allowed", pointer=pointer, detail=detail)


def _pattern(names: str) -> re.Pattern[str]:
    """What a list of names matches; a star ends at dots and @, so that no pattern for hosts matches another domain."""
    return re.compile("|".join(re.escape(name.strip()).replace(r"\*", "[A-Za-z0-9_-]*") for name in names.split(",")))
