"""A whole plan for a cluster that has the jobs: a script of kubectl's commands, and the same patches for programs."""

import json
import shlex
import time
from collections.abc import Mapping, Sequence

from executor.export.kubernetes.declared import DEFAULT_CHECK, DEFAULT_RETRY_S
from executor.export.kubernetes.options import read_amount_s, read_key, read_name
from executor.export.plan import ExportedPlan, PlanFiles
from executor.kubernetes.answers import AnswerOptions
from executor.kubernetes.handover import HandoverOptions, Hopeless, hand_over, read_objects
from executor.kubernetes.names import HOSTNAME
from executor.kubernetes.patches import Patch
from models.cluster_state.base import SourceDocument
from models.wording import counted
from stowplan.errors import InputError, Issue

SCRIPT, LIST = "apply.sh", "patches.json"
_HEAD = """\
#!/bin/sh
# sh apply.sh, as somebody who may patch the status of workloads, and pods: hands a plan of Stowplan over to Kubernetes.
# An object that has changed since it was read is left as it is, and counts as one that failed.
set -u
failed=0
apply() {
    "$@" || failed=$((failed + 1))
}
"""
_TAIL = """\
[ "$failed" -eq 0 ] || { echo "$failed patches failed; read the state again, and plan" >&2; exit 1; }
"""


def write_kubernetes(plan: ExportedPlan, options: Mapping[str, str]) -> PlanFiles:
    """Write the script and the list.

    Raises
    ------
    InputError
        When an option is wrong, or a document is not what kubectl writes.
    """
    documents = {
        role: [SourceDocument(name=role, text=options[role])] if options.get(role) else []
        for role in ("workloads", "pods")
    }
    said = _read(options, plan.taken_at_s)
    if not any(documents.values()):
        raise InputError("a plan is said to objects that are there: give workloads=, pods= or both")
    objects = read_objects(documents["workloads"], documents["pods"], said.answers.check)
    made = hand_over(plan.plan, plan.snapshot.cluster, objects, said)
    return PlanFiles(files={SCRIPT: _script(made.patches, made.notes), LIST: _list(made.patches)}, notes=made.notes)


def _read(options: Mapping[str, str], taken_at_s: float | None) -> HandoverOptions:
    issues: list[Issue] = []
    retry_s = read_amount_s(options, "retry", issues)
    answers = AnswerOptions(
        check=read_name(options, "check", issues) or DEFAULT_CHECK,
        node_key=read_key(options, "node-key", issues) or HOSTNAME,
        # What waits is counted from then; a snapshot without a moment is of now.
        at_s=time.time() if taken_at_s is None else taken_at_s,
        retry_s=DEFAULT_RETRY_S if retry_s is None else retry_s,
    )
    if issues:
        raise InputError("options of the export to kubernetes", issues)
    return HandoverOptions(answers=answers, hopeless=Hopeless(options["hopeless"]))


def _script(patches: Sequence[Patch], notes: Sequence[Issue]) -> str:
    said = [f"# {counted(len(patches), 'patch')}."] + [f"# {note.code}: {_line(note.detail)}" for note in notes]
    return _HEAD + "".join(f"{line}\n" for line in said) + "".join(map(_command, patches)) + _TAIL


def _command(patch: Patch) -> str:
    """A command with its patch, which is one line of JSON, below."""
    words = shlex.join(patch.kubectl("/dev/stdin"))
    return f"\n# {_line(f'{patch.job_id}: {patch.meaning}')}\napply {words} <<'PATCH'\n{patch.text}PATCH\n"


def _line(text: str) -> str:
    """Text as one line of a comment: ids and names may hold anything."""
    return "".join(char if char.isprintable() else " " for char in text)


def _list(patches: Sequence[Patch]) -> str:
    items = [
        {
            "job_id": patch.job_id,
            "meaning": patch.meaning,
            "resource": patch.resource,
            "namespace": patch.namespace,
            "name": patch.name,
            "subresource": patch.subresource,
            "patch": patch.operations,
        }
        for patch in patches
    ]
    return json.dumps(items, indent=1) + "\n"
