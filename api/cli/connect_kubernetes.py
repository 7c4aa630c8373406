"""`stowplan connect kubernetes`."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.commands import command
from api.cli.connect_options import (
    Arnold,
    CalendarSource,
    ConnectedCalendar,
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
from executor.connected.kubernetes.terms import Terms
from executor.connected.loop import decisions
from executor.control.controller import Planner
from executor.control.options import ControlOptions
from executor.extra import missing_extra
from stowplan.errors import ExtraMissingError, InputError

if TYPE_CHECKING:
    from executor.connected.kubernetes.backend import KubernetesCluster

_NO_FACTS = GpuFacts(memory=None, peak_flops=None, intra_node_bandwidth=None, inter_node_bandwidth=None)


@command("kubernetes", epilog=EPILOG)
def kubernetes_command(
    kubeconfig: Annotated[Path | None, typer.Option(help="Where the cluster and the credentials stand.")] = None,
    context: Annotated[str | None, typer.Option(help="Which of them; the current one if left out.")] = None,
    in_cluster: Annotated[bool, typer.Option("--in-cluster", help="The service account of this pod.")] = False,
    namespace: Annotated[list[str] | None, typer.Option(help="Govern this namespace alone; may be repeated.")] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Govern this queue of Kueue alone; may be repeated.")] = None,
    may_delete: Annotated[
        bool,
        typer.Option(
            "--may-delete", help="Jobs may lose their GPUs: pods are deleted whose controllers make new ones."
        ),
    ] = False,
    policy: PolicyName = "gang",
    parameters: PolicyParameters = None,
    arnold: Arnold = None,
    time_limit: TimeLimit = 30.0,
    calendar: CalendarSource = None,
    send: Send = False,
    once: Once = False,
    log: Log = None,
    lease: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="With --send: who holds this Lease sends; one for each part that is governed.",
        ),
    ] = "default/stowplan-connect",
    release: Annotated[
        bool,
        typer.Option("--release", help="Let all go that waits, wherever Kubernetes puts it, and end: the way out."),
    ] = False,
    release_on_exit: Annotated[
        bool, typer.Option("--release-on-exit", help="Do so when this ends, also by a signal.")
    ] = False,
    gpu_type: Annotated[list[str] | None, typer.Option(help="As for `stowplan import`.")] = None,
    gpu_types: Annotated[Path | None, typer.Option(help="As for `stowplan import`.")] = None,
    minipod_tier: Annotated[str | None, typer.Option(help="Tier whose units are the minipods.")] = None,
    topology_labels: Annotated[str | None, typer.Option(help="As for `stowplan import kubernetes`.")] = None,
    tolerated: Annotated[str | None, typer.Option(help="As for `stowplan import kubernetes`.")] = None,
    _catalogue: Catalogue = None,
) -> None:
    """Say when and where pods behind our scheduling gate start, and workloads of Kueue; dry without --send.

    Ctrl-C and SIGTERM end it; what was placed goes on, and what waits behind the gate waits for the next connection.
    """
    if in_cluster and (kubeconfig is not None or context is not None):
        raise InputError("--in-cluster is given beside --kubeconfig or --context; give one or the other")
    if missing := missing_extra("this command", ("kubernetes",), extra="kubernetes"):
        raise ExtraMissingError(missing)
    # Only now: they load the client, which need not be installed.
    from executor.connected.kubernetes.api import ConnectedApi
    from executor.connected.kubernetes.backend import KubernetesCluster
    from executor.connected.kubernetes.cluster import ClusterCopy
    from executor.connected.kubernetes.lease import ANSWER_S, Lease
    from models.cluster_state.kubernetes.client import configured

    options = control_options(policy, parameters, time_limit)
    settings = {"topology-labels": topology_labels, "tolerated": tolerated}
    reading = replace(
        state_options(gpu_names(gpu_type or ()), _NO_FACTS, None, gpu_types, minipod_tier, None, {}),
        settings={name: text for name, text in settings.items() if text is not None},
    )
    terms = Terms(namespaces=tuple(namespace or ()), queues=tuple(queue or ()), may_delete=may_delete)
    out, err = output(), errors()
    say = partial(err.print, soft_wrap=True, markup=False)
    planner = planner_of(arnold, options, say, loads=not release)
    journal = Journal(partial(out.print, soft_wrap=True, markup=False), log, is_dry=not send)
    file = None if kubeconfig is None else str(kubeconfig)
    way = configured(file, context, in_cluster=in_cluster)
    copy = ClusterCopy(ConnectedApi(way))
    held = Lease(ConnectedApi(way, ANSWER_S), lease, say=say, lost=copy.wake)
    try:
        if send:
            # First: what somebody else does until then is seen.
            held.acquire()
        copy.begin()
        source = None if calendar is None else ConnectedCalendar(calendar).news
        may_send = held.check if send else _nobody_else
        backend = KubernetesCluster(copy, terms, reading, journal, calendar=source, may_send=may_send, say=say)
        say(backend.summary())
        if not release:
            _decide(backend, options, planner, say, once=once)
        if release or release_on_exit:
            say(f"let go without a choice of nodes: {backend.release()}")
    finally:
        copy.close()
        held.release()
    if journal.is_dry and journal.num_notes:
        say(f"nothing was sent: {journal.num_notes} changes would have been; --send sends them")


def _nobody_else() -> None:
    """Nothing is sent: nobody minds."""


def _decide(
    cluster: "KubernetesCluster", options: ControlOptions, planner: Planner, say: Callable[[str], None], *, once: bool
) -> None:
    """Decide until somebody ends this, or once."""
    cluster.serve_checks()
    if once:
        # Also where nothing waits.
        cluster.wake_at(0.0)
    with closed_by_signals(cluster.close):
        for step in decisions(cluster, options, planner):
            if (words := step_words(step, datetime.now(UTC))) is not None:
                say(words)
            if once:
                return
