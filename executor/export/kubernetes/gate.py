"""place.sh: lifts our gate from the pods of a job, each with the host of its index.

For pods of one template no manifest can say which goes where; while a pod has a gate, its node selector may still be
added to.
"""

import json
import shlex
from collections.abc import Mapping

from executor.export.kubernetes.options import Settings
from executor.export.kubernetes.pods import PlacedPods
from models.cluster_state.kubernetes.pods import PLACEMENT_GATE

_SCRIPT = """\
#!/bin/sh
# sh place.sh, once the pods of {name} are there: those that wait are told their hosts, and let go. Running it again
# does no harm.
set -eu
selector={selector}
host_of() {{
    case "$1" in
{cases}
    *) echo "pod index '$1' is none of {name}" >&2; return 1 ;;
    esac
}}
columns='{{.metadata.name}} {{.metadata.labels.{index}}} {{.spec.schedulingGates[*].name}}'
pods="$(kubectl get pods --namespace={namespace} --selector="$selector" \\
    --output="jsonpath={{range .items[*]}}$columns{{\\"\\\\n\\"}}{{end}}")"
[ -n "$pods" ] || {{ echo "there are no pods of {name} yet" >&2; exit 1; }}
printf '%s\\n' "$pods" | while read -r pod index gates; do
    case " $gates " in
    *" {gate} "*) ;;
    *) continue ;;
    esac
    host="$(host_of "$index")"
    kubectl patch pod "$pod" --namespace={namespace} --type=strategic --patch={patch}
done
"""


def place_script(name: str, placed: PlacedPods, settings: Settings, labels: Mapping[str, str], index: str) -> str:
    """The script.

    Parameters
    ----------
    labels
        What all pods of the job have.
    index
        Label with the index of a pod: host k of the job is that of index k.
    """
    gone = {"$patch": "delete", "name": PLACEMENT_GATE}
    patch = json.dumps({"spec": {"nodeSelector": {settings.node_key: "HOST"}, "schedulingGates": [gone]}})
    before, after = (shlex.quote(part) for part in patch.split("HOST"))
    return _SCRIPT.format(
        name=name,
        selector=shlex.quote(",".join(f"{key}={value}" for key, value in labels.items())),
        cases="\n".join(f"    {k}) echo {shlex.quote(host)} ;;" for k, host in enumerate(placed.hosts)),
        index=index.replace(".", r"\."),
        namespace=shlex.quote(settings.namespace),
        gate=PLACEMENT_GATE,
        patch=f'{before}"$host"{after}',
    )
