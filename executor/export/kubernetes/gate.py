"""Jobs whose pods have one template, and place.sh, which lifts our gate from each with the host of its index.

For such pods no manifest can say which goes where; while a pod has a gate, its node selector may still be added to.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from executor.export.job import ExportedJob
from executor.export.kubernetes.options import Settings, read_settings
from executor.export.kubernetes.pods import PlacedPods, manifest, placed_pods
from executor.kubernetes.names import MAX_LABEL, dns_label
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTemplate:
    """A job of such pods; each has `num_ranks` ranks."""

    name: str
    settings: Settings
    placed: PlacedPods
    num_ranks: int

    @property
    def num_hosts(self) -> int:
        """How many pods there are."""
        return len(self.placed.hosts)

    @property
    def host(self) -> str | None:
        """The only host, which the template names; None: there are several, and pods wait behind our gate."""
        return self.placed.hosts[0] if self.num_hosts == 1 else None

    def files(
        self, name: str, comment: str, labels: Mapping[str, str], index: str, *documents: Mapping[str, Any]
    ) -> dict[str, str]:
        """The manifest, and place.sh where pods wait; of the comment `{name}`, `{runtime}` and `{then}` are filled in,
        of the other parameters those of `place_script`."""
        then = ", then sh place.sh" if self.host is None else ""
        said = comment.format(name=self.name, runtime=self.settings.runtime, then=then)
        files = {name: manifest(said, *documents)}
        if self.host is None:
            files["place.sh"] = place_script(self.name, self.placed, self.settings, labels, index)
        return files


def one_template(job: ExportedJob, options: Mapping[str, str], controller: str, suffix: str) -> OneTemplate:
    """Read what a controller with one template is told.

    Parameters
    ----------
    suffix
        What the controller makes the longest name of with that of the job; `{last}` is the last index of a pod.

    Raises
    ------
    InputError
        When an option is wrong, hosts have ranks in pieces or different numbers of them, or no name of a node.
    """
    settings, placed = read_settings(options), placed_pods(job)
    return OneTemplate(
        name=dns_label(job.plain_name, MAX_LABEL - len(suffix.format(last=len(placed.hosts) - 1))),
        settings=settings,
        placed=placed,
        num_ranks=placed.alike(controller),
    )


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
