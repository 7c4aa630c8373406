"""A real Slurm of several nodes on this machine: Debian's slurm-wlm with its own munge, in a folder of its own.

    leaf-a: n1 n3      leaf-b: n2 n4        2 CPUs and 2 GPUs a node, the GPUs are /dev/null and /dev/zero

    leaf-a: n1 n3   leaf-b: n2 n4           LARGER: two pods below the spine
    leaf-c: n5 n7   leaf-d: n6 n8

Those of another type are files of the folder, which nobody opens.

No service of the system is touched. With a network, every node is a host of it and the controller runs on its spine;
without, all share this machine's network and differ in their ports.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.placement.namespaces import HEAD, HEAD_ADDRESS, Network
from executor.launch.local import free_port

NODES = ("n1", "n2", "n3", "n4")
LEAVES = {"leaf-a": ("n1", "n3"), "leaf-b": ("n2", "n4")}
# Grace between SIGTERM and SIGKILL when a job is ended.
KILL_WAIT_S = 5

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "sinfo")
# What is called from outside of jobs.
_CLIENTS = ("sbatch", "scancel", "scontrol", "sinfo")
_START_S = 60.0
_END_S = 10.0
_COMMAND_S = 30.0
_POLL_S = 0.2

_CONFIGURATION = """\
ClusterName=stowplan
SlurmctldHost={name}({head})
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
MailProg=/bin/true
MpiDefault=none
# Neither control groups nor accounting are needed.
ProctrackType=proctrack/linuxproc
# Tasks are bound to the CPUs that they are given, as on most clusters.
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
TopologyPlugin={topology}
# Nodes are what is written here, whatever the machine has.
SlurmdParameters=config_overrides
ReturnToService=2
KillWait={kill_wait}
GresTypes=gpu
# In MiB: room for several jobs that say what they need.
NodeName=DEFAULT RealMemory=16
{nodes}
PartitionName=all Nodes={all} Default=YES MaxTime=INFINITE State=UP
{more}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Nodes by leaf switch; leaves by the switch above, which are below the spine (none: leaves are)."""

    leaves: Mapping[str, tuple[str, ...]]
    pods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """By name."""
        return tuple(sorted(node for nodes in self.leaves.values() for node in nodes))

    def topology(self) -> str:
        """As topology.conf has it."""
        lines = [f"SwitchName={leaf} Nodes={','.join(nodes)}" for leaf, nodes in self.leaves.items()]
        lines += [f"SwitchName={pod} Switches={','.join(leaves)}" for pod, leaves in self.pods.items()]
        return "\n".join([*lines, f"SwitchName=spine Switches={','.join(self.pods or self.leaves)}"]) + "\n"


# More lines of slurm.conf: a scheduler that looks often, as nobody has time.
OFTEN = ("SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=100000",)
SMALL = Layout(leaves=LEAVES)
LARGER = Layout(
    leaves={**LEAVES, "leaf-c": ("n5", "n7"), "leaf-d": ("n6", "n8")},
    pods={"pod-x": ("leaf-a", "leaf-b"), "pod-y": ("leaf-c", "leaf-d")},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCluster:
    """A cluster that is up. `environment`: variables with which Slurm's commands find it. `kill_controller`: with
    SIGKILL; `start_controller`: again, with the state that it had saved."""

    environment: Mapping[str, str]
    kill_controller: Callable[[], None]
    start_controller: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs of a type on every node, with as many CPUs."""

    type: str
    num: int


def missing() -> str | None:
    """What keeps a cluster from being started here; None when nothing does."""
    lacking = [program for program in _PROGRAMS if shutil.which(program) is None]
    if lacking:
        return f"there is no {', '.join(lacking)} here (Debian: slurm-wlm, munge)"
    return "slurmd needs root" if os.geteuid() != 0 else None


@contextlib.contextmanager
def slurm_cluster(
    folder: Path,
    network: Network | None = None,
    gpus: Gpus | None = None,
    *,
    layout: Layout = SMALL,
    settings: Sequence[str] = (),
    topology: str = "topology/tree",
) -> Iterator[SlurmCluster]:
    """Start munge, the controller and the nodes; end them with the block. settings: more lines of slurm.conf."""
    folder.mkdir(parents=True)
    _write_configuration(folder, network, gpus, layout, {"more": "\n".join(settings), "topology": topology})
    environment = _environment(folder, network)
    with contextlib.ExitStack() as stack:
        controllers: list[subprocess.Popen[bytes]] = []

        def start(name: str, *command: str) -> "subprocess.Popen[bytes]":
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            return subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

        files = {option: folder / f"munge.{option}" for option in ("key-file", "pid-file", "log-file", "seed-file")}
        munge = start(
            *("munge", "munged", "--foreground", "--force", f"--socket={folder / 'munge.socket'}"),
            *(f"--{option}={path}" for option, path in files.items()),
        )
        stack.callback(_end, munge)
        _wait(lambda: (folder / "munge.socket").exists(), folder)
        stack.callback(_end_all, controllers)
        controllers.append(start("slurmctld", *_enter(network, HEAD), "slurmctld", "-D", "-i"))

        def kill_controller() -> None:
            controllers[-1].kill()
            controllers[-1].wait(_END_S)

        def start_controller() -> None:
            controllers.append(start(f"slurmctld-{len(controllers)}", *_enter(network, HEAD), "slurmctld", "-D"))
            _wait(lambda: len(_states(environment)) == len(layout.nodes), folder)

        for node in layout.nodes:
            stack.callback(_end, start(f"slurmd-{node}", *_enter(network, node), "slurmd", "-D", "-N", node))
        stack.callback(_end_jobs, environment, folder)
        _wait(lambda: _states(environment) == ["idle"] * len(layout.nodes), folder)
        yield SlurmCluster(environment=environment, kill_controller=kill_controller, start_controller=start_controller)


def _write_configuration(
    folder: Path, network: Network | None, gpus: Gpus | None, layout: Layout, words: Mapping[str, str]
) -> None:
    ports = iter([free_port() for _ in range(1 + len(layout.nodes))])
    head = HEAD_ADDRESS if network else "127.0.0.1"
    addresses = network.addresses if network else dict.fromkeys(layout.nodes, "127.0.0.1")
    everywhere = f"NodeName={','.join(layout.nodes)} Name=gpu"
    resources, devices = "CPUs=2 Gres=gpu:2", f"{everywhere} File=/dev/null\n{everywhere} File=/dev/zero\n"
    if gpus is not None:
        resources = f"CPUs={gpus.num} RealMemory=64 Gres=gpu:{gpus.type}:{gpus.num}"
        devices = f"{everywhere} Type={gpus.type} File={folder}/gpu[0-{gpus.num - 1}]\n"
        for k in range(gpus.num):
            (folder / f"gpu{k}").touch()
    text = _CONFIGURATION.format(
        name=socket.gethostname(),
        head=head,
        port=next(ports),
        folder=folder,
        kill_wait=KILL_WAIT_S,
        nodes="\n".join(
            f"NodeName={node} NodeAddr={addresses[node]} Port={next(ports)} {resources} State=UNKNOWN"
            for node in layout.nodes
        ),
        all=",".join(layout.nodes),
        **words,
    )
    for name, content in (("slurm.conf", text), ("topology.conf", layout.topology()), ("gres.conf", devices)):
        (folder / name).write_text(content)
    (folder / "state").mkdir()
    key = folder / "munge.key-file"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))


def _environment(folder: Path, network: Network | None) -> dict[str, str]:
    """Variables that lead Slurm's commands to the cluster; with a network they are run on its spine."""
    variables = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    if network is not None:
        (folder / "bin").mkdir()
        for client in _CLIENTS:
            words = " ".join([*network.enter(HEAD), str(shutil.which(client))])
            script = folder / "bin" / client
            script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            script.chmod(0o755)
        variables["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    return variables


def _enter(network: Network | None, host: str) -> Sequence[str]:
    return network.enter(host) if network else ()


def _states(environment: Mapping[str, str]) -> list[str]:
    """States of the nodes; empty while the controller does not answer."""
    ask = ["sinfo", "--noheader", "--Node", "--format=%t"]
    done = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    return done.stdout.split()


def _end_jobs(environment: Mapping[str, str], folder: Path) -> None:
    """End all jobs: their processes are children of none that is ended here."""
    subprocess.run(["scancel", "--user=root"], env=environment, timeout=_COMMAND_S, check=False)
    _wait(lambda: set(_states(environment)) == {"idle"}, folder)


def _wait(until: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not until():
        if time.monotonic() > deadline:
            said = "\n".join(f"{log.name}: {log.read_text()[-500:]}" for log in sorted(folder.glob("*.log")))
            raise RuntimeError(f"Slurm is not ready after {_START_S:.0f} s\n{said}")
        time.sleep(_POLL_S)


def _end_all(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
