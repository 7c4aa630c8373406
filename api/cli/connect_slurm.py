"""`stowplan connect slurm`."""

import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from api.cli.commands import command
from api.cli.connect_options import (
    Arnold,
    Log,
    Once,
    PolicyName,
    PolicyParameters,
    Send,
    TimeLimit,
    closed_by_signals,
    control_options,
    planner_of,
    step_words,
)
from api.cli.console import errors, output
from api.cli.exit_codes import EPILOG
from api.cli.gpu_facts import GpuFacts, gpu_names
from api.cli.import_state import state_options
from api.cli.paths import Catalogue
from executor.connected.journal import Journal
from executor.connected.loop import decisions
from executor.connected.nearness import NearNodesFirst
from executor.connected.slurm.backend import SlurmCluster
from executor.connected.slurm.client import SlurmClient, site_of
from executor.connected.slurm.lock import alone
from executor.connected.slurm.terms import Terms
from stowplan.errors import InputError

_NO_FACTS = GpuFacts(memory=None, peak_flops=None, intra_node_bandwidth=None, inter_node_bandwidth=None)


@command("slurm", epilog=EPILOG)
def slurm_command(
    partition: Annotated[list[str] | None, typer.Option(help="Govern jobs of this partition; may be repeated.")] = None,
    qos: Annotated[list[str] | None, typer.Option(help="Govern jobs of this QOS; may be repeated.")] = None,
    comments: Annotated[
        bool, typer.Option(help="Govern jobs whose comment says stowplan; those that say stowplan: off never are.")
    ] = True,
    may_requeue: Annotated[
        bool, typer.Option("--may-requeue", help="Jobs that Slurm may requeue may lose their GPUs, as the policy says.")
    ] = False,
    policy: PolicyName = "gang",
    parameters: PolicyParameters = None,
    arnold: Arnold = None,
    time_limit: TimeLimit = 30.0,
    interval: Annotated[float, typer.Option(min=0.1, max=600, help="Seconds between looks at the queue.")] = 5.0,
    near_wait: Annotated[
        float,
        typer.Option(min=0, max=3600, help="Seconds that a job waits for closer nodes than those that are free first."),
    ] = 0.0,
    lease: Annotated[
        float, typer.Option(help="Seconds after which jobs that wait for us are Slurm's own again if we are gone.")
    ] = 600.0,
    patience: Annotated[float, typer.Option(help="Seconds in which a job has to start where it was sent.")] = 60.0,
    send: Send = False,
    once: Once = False,
    log: Log = None,
    release: Annotated[
        bool, typer.Option("--release", help="Let all go that waits for us, so that Slurm schedules it, and end.")
    ] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Do not let go when this ends: for a restart within the lease.")
    ] = False,
    slurm_folder: Annotated[
        Path | None, typer.Option(help="Folder of Slurm's commands; else the path has them.")
    ] = None,
    slurm_conf: Annotated[Path | None, typer.Option(help="slurm.conf of the cluster, as SLURM_CONF.")] = None,
    topology: Annotated[Path | None, typer.Option(help="topology.conf or .yaml; else that beside slurm.conf.")] = None,
    lock: Annotated[Path | None, typer.Option(help="File that one connection at a time holds.")] = None,
    gpu_type: Annotated[list[str] | None, typer.Option(help="As for `stowplan import`.")] = None,
    gpu_types: Annotated[Path | None, typer.Option(help="As for `stowplan import`.")] = None,
    minipod_tier: Annotated[str | None, typer.Option(help="Tier whose units are the minipods.")] = None,
    _catalogue: Catalogue = None,
) -> None:
    """Say when and where jobs of Slurm start whose users opted in; dry without --send.

    Ctrl-C and SIGTERM end it, and let go of what waits: Slurm schedules it alone. What runs runs on.
    """
    options = control_options(policy, parameters, time_limit)
    terms = Terms(
        partitions=tuple(partition or ()),
        qos=tuple(qos or ()),
        comments=comments,
        lease_s=lease,
        patience_s=patience,
        may_requeue=may_requeue,
    )
    reading = state_options(gpu_names(gpu_type or ()), _NO_FACTS, None, gpu_types, minipod_tier, None, {})
    environment = {} if slurm_conf is None else {"SLURM_CONF": str(slurm_conf)}
    client = SlurmClient(folder=slurm_folder, environment=environment)
    site = site_of(client, topology)
    out, err = output(), errors()
    say = partial(err.print, soft_wrap=True, markup=False, highlight=False)
    planner = planner_of(arnold, options, say, loads=not release)
    journal = Journal(partial(out.print, soft_wrap=True, markup=False, highlight=False), log, is_dry=not send)
    held = lock or Path(tempfile.gettempdir()) / f"stowplan-connect-{site.name}.lock"
    # A dry one disturbs nobody, and is disturbed by nobody.
    with alone(held if send else Path("/dev/null")):
        cluster = SlurmCluster(client, site, terms, reading, journal, interval_s=interval, say=say)
        near = NearNodesFirst(planner, near_wait, lambda: cluster.now_s)
        say(cluster.summary())
        try:
            if not release:
                with closed_by_signals(cluster.close):
                    for step in decisions(cluster, options, near, lambda: near.due_s):
                        if (words := step_words(step, datetime.now(UTC))) is not None:
                            say(words)
                        if once:
                            break
        finally:
            if send and not ((once or stay) and not release):
                _let_go(cluster, say)
    if release and not send:
        cluster.release()
    if journal.is_dry and journal.num_notes:
        say(f"nothing was sent: {journal.num_notes} changes would have been; --send sends them")


def _let_go(cluster: SlurmCluster, say: "partial[None]") -> None:
    """Step back, so that Slurm schedules alone."""
    try:
        num = cluster.release()
    except InputError as error:
        say(f"nothing could be let go, and goes by itself when its lease is over: {error.detail}")
    else:
        say(f"let go, for Slurm to schedule: {num}")
