"""Slurm's own commands, run with a limit; what they write, as documents, and what is wrong with them by name."""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.cluster_state.base import SourceDocument
from stowplan.errors import FileFormatError, InputError

# From here on scontrol writes JSON.
_HAS_JSON = (23, 2)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_CONF = re.compile(r"^SLURM_CONF\s*=\s*(\S+)", re.MULTILINE)
_NAME = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)
_AWAY = ("Unable to contact slurm controller", "Socket timed out", "Connection refused", "Zero Bytes were transmitted")
_DENIED = ("Access/permission denied", "Invalid user id", "not authorized")
_ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_SHOWN_CHARS = 500


class SlurmAwayError(InputError):
    """slurmctld does not answer; it may again."""

    code = "slurm_away"


class SlurmDeniedError(InputError):
    """This user may not do that, and will not be allowed to the next time."""

    code = "slurm_denied"


class SlurmRefusedError(InputError):
    """Slurm has refused a command; the detail has its words."""

    code = "slurm_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmClient:
    """Slurm's commands as this process finds them. `folder`: where they are (None: on the path). `environment`: more
    variables, as SLURM_CONF. `limit_s`: how long one may take."""

    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 30.0

    def run(self, words: Sequence[str]) -> str:
        """What a command writes.

        Raises
        ------
        SlurmAwayError
            When slurmctld does not answer in time.
        SlurmDeniedError
            When this user has no right to it.
        SlurmRefusedError
            When the command fails otherwise.
        InputError
            When there is no such command here.
        """
        program = words[0] if self.folder is None else str(self.folder / words[0])
        said = " ".join(words[:4])
        try:
            done = subprocess.run(  # noqa: S603 - a list of arguments, and no shell
                [program, *words[1:]],
                env={**os.environ, **self.environment, **_ENVIRONMENT},
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                # Ctrl-C is for us, who end in order.
                start_new_session=True,
                timeout=self.limit_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise InputError(
                f"there is no {program} here; run this where Slurm's commands are, or say where with --slurm-folder"
            ) from error
        except PermissionError as error:
            raise InputError(f"{program} may not be run by this user") from error
        except subprocess.TimeoutExpired as error:
            raise SlurmAwayError(f"`{said}` took longer than {self.limit_s:g} s") from error
        if done.returncode == 0:
            return done.stdout
        words_said = " ".join((done.stderr or done.stdout).split())[:_SHOWN_CHARS]
        if any(text in words_said for text in _AWAY):
            raise SlurmAwayError(f"slurmctld does not answer: {words_said}")
        if any(text in words_said for text in _DENIED):
            raise SlurmDeniedError(f"`{said}` is not permitted to this user, who must be an operator: {words_said}")
        raise SlurmRefusedError(f"`{said}` failed: {words_said or f'exit status {done.returncode}'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What does not change while Slurm runs. has_json: whether scontrol writes JSON. topology: None for a flat one."""

    name: str
    has_json: bool
    topology: SourceDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What Slurm says at a moment; `queue` is parsed, since what is ours in it is to be told apart first."""

    nodes: SourceDocument
    partitions: SourceDocument | None
    reservations: SourceDocument
    queue: dict[str, Any]


def site_of(client: SlurmClient, topology: Path | None = None) -> Site:
    """Look which Slurm this is. Without `topology`, topology.conf or topology.yaml beside slurm.conf says how nodes are
    connected, where there is one.

    Raises
    ------
    InputError
        When Slurm does not answer, or the topology cannot be read.
    """
    version = _VERSION.search(client.run(("scontrol", "--version")))
    if version is None:
        raise InputError("`scontrol --version` does not say a version")
    config = client.run(("scontrol", "show", "config"))
    name, conf = _NAME.search(config), _CONF.search(config)
    if topology is None and conf is not None:
        beside = (Path(conf[1]).with_name(file) for file in ("topology.yaml", "topology.conf"))
        topology = next((path for path in beside if path.is_file()), None)
    document = None
    if topology is not None:
        try:
            document = SourceDocument(name=str(topology), text=topology.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{topology}: cannot be read: {error}") from error
    return Site(
        name="cluster" if name is None else name[1],
        has_json=(int(version[1]), int(version[2])) >= _HAS_JSON,
        topology=document,
    )


def documents_of(client: SlurmClient, site: Site) -> Documents:
    """Ask for nodes first and for jobs last: a job that has begun meanwhile is on nodes that are known.

    Raises
    ------
    InputError
        When Slurm does not answer, or refuses.
    FileFormatError
        When it writes no JSON.
    """

    def shown(*words: str) -> SourceDocument:
        return SourceDocument(name=" ".join(words), text=client.run(words))

    if site.has_json:
        nodes = shown("scontrol", "show", "nodes", "--json")
        partitions = shown("scontrol", "show", "partitions", "--json")
        reservations = shown("scontrol", "show", "reservations", "--json")
    else:
        nodes, partitions = shown("sinfo", "--json"), None
        reservations = shown("scontrol", "show", "reservations", "--oneliner")
    text = client.run(("squeue", "--json"))
    try:
        queue = json.loads(text)
    except ValueError as error:
        raise FileFormatError(f"squeue --json: is no JSON: {error}") from error
    if not isinstance(queue, dict) or not isinstance(queue.get("jobs"), list):
        raise FileFormatError("squeue --json: has no list of jobs")
    return Documents(nodes=nodes, partitions=partitions, reservations=reservations, queue=queue)
