"""torchrun with static ranks: node k has the ranks behind those of the nodes before it (`_assign_worker_ranks` of
`torch/distributed/elastic/agent/server/api.py`), whatever other launchers make of the order in which nodes come.
"""

from collections.abc import Mapping

from executor.deployment import DEFAULT_PORT
from executor.export.job import ExportedJob

_SCRIPT = """\
#!/bin/sh
# On every host: sh torchrun.sh train.py ARGUMENTS. Rank r gets the GPU that the plan gives it.
set -eu
host="${{STOWPLAN_HOST:-$(hostname)}}"
case "$host" in
{cases}
*) echo "$host is no host of job {name}; say which one in STOWPLAN_HOST" >&2; exit 2 ;;
esac
export CUDA_VISIBLE_DEVICES="$gpus"
exec torchrun --nnodes={nodes} --nproc-per-node="$ranks" --node-rank="$node" \\
    --master-addr="${{MASTER_ADDR:-{first}}}" --master-port="${{MASTER_PORT:-{port}}}" "$@"
"""


def write_torchrun(job: ExportedJob) -> Mapping[str, str]:
    """Write a script that is run on every host.

    Raises
    ------
    InputError
        When the ranks of a host are not one after another.
    """
    hosts = job.in_one_go("torchrun")
    cases = [
        f"{host}|{host}.*) node={k} ranks={len(ranks)} gpus={','.join(map(str, job.gpus_of(ranks)))} ;;"
        for k, (host, ranks) in enumerate(hosts.items())
    ]
    script = _SCRIPT.format(
        cases="\n".join(cases), name=job.plain_name, nodes=len(hosts), first=job.gpus[0][0], port=DEFAULT_PORT
    )
    return {"torchrun.sh": script}
