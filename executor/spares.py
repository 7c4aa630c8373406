"""Spare hosts in the place of those that take no job any more; only names change in the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from executor.deployment import Deployment


def replacements(deployment: Deployment, lost: Sequence[str]) -> dict[str, str]:
    """Spare for every host of `lost`, or none at all where there are too few."""
    used = {*lost, *(node for node, _ in deployment.plan.gpus)}
    spares = [spare for spare in deployment.launch.spares if spare not in used]
    return dict(zip(lost, spares, strict=False)) if len(lost) <= len(spares) else {}


def moved(deployment: Deployment, hosts: Mapping[str, str]) -> Deployment:
    """The same on other hosts, by the ones that they take the place of; neither are spares any more."""
    plan = deployment.plan
    stages = tuple(
        replace(stage, replicas=tuple(replace(one, node=hosts.get(one.node, one.node)) for one in stage.replicas))
        for stage in plan.stages
    )
    left = tuple(spare for spare in deployment.launch.spares if spare not in {*hosts, *hosts.values()})
    return replace(deployment, plan=replace(plan, stages=stages), launch=replace(deployment.launch, spares=left))
