"""`stowplan verify`: check somebody's placement."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG, ExitCode
from api.cli.files import load_allocations, load_snapshot
from api.cli.options import ForecasterOption, Json, print_document
from api.cli.paths import Catalogue, readable
from api.convert.issues import issue_documents
from api.convert.placement import placement_issues
from api.schemas.problem import VerificationDoc
from models.epsilon import EPSILON
from models.wording import counted
from stowplan.errors import Issue

# Below 1; nobody asks for less certainty.
MOST_EPSILON = 0.999


@command("verify", epilog=EPILOG)
def verify_command(
    snapshot: Annotated[Path, typer.Argument(metavar="SNAPSHOT", help="A snapshot or a plan request; - for stdin.")],
    allocations: Annotated[Path, typer.Argument(metavar="ALLOCATIONS", help="Allocations, or a plan.")],
    epsilon: Annotated[
        float,
        typer.Option(
            min=0,
            max=MOST_EPSILON,
            help="Probability with which a job may still run when its nodes are closed.",
        ),
    ] = EPSILON,
    forecaster: ForecasterOption = None,
    json_: Json = False,
    _catalogue: Catalogue = None,
) -> None:
    """Check somebody's placement on a snapshot and print every rule that it breaks."""
    with busy(f"checking {allocations}"):
        known = load_snapshot(readable(snapshot), forecaster)
        placement = load_allocations(readable(allocations))
        violations = placement_issues(placement, known, epsilon)
    if json_:
        print_document(VerificationDoc(legal=not violations, violations=issue_documents(violations)))
    elif violations:
        console.output().print(_violations_table(violations))
    else:
        console.output().print(f"legal: {counted(len(placement), 'allocation')}, no violations")
    raise typer.Exit(ExitCode.ILLEGAL if violations else ExitCode.PLANNED)


def _violations_table(violations: Sequence[Issue]) -> Table:
    """Violations of a placement."""
    table = Table("rule", "where", "what", box=None, pad_edge=False, header_style="bold")
    for issue in violations:
        table.add_row(issue.code, escape(issue.pointer), escape(issue.detail))
    return table
