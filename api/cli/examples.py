"""`stowplan examples`: the packaged examples."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from api.cli.commands import command
from api.cli.pretty import pretty_json
from api.common.examples import Example, example, examples


@command("examples")
def examples_command(
    example_id: Annotated[str | None, typer.Argument(metavar="ID", help="Print this one.")] = None,
) -> None:
    """List the packaged examples, or print one, ready for `stowplan plan -`."""
    if example_id is None:
        _print_table(examples())
    else:
        sys.stdout.write(pretty_json(example(example_id).request) + "\n")


def _print_table(known: Sequence[Example]) -> None:
    """Three columns, without rich: it takes longer to load than all the rest of this command."""
    rows = [("example", "policy", "title"), *((one.id, str(one.request["policy"]), one.title) for one in known)]
    id_width, policy_width, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    for k, (id_, policy, title) in enumerate(rows):
        line = f"{id_:{id_width}}  {policy:{policy_width}}  {title}"
        typer.echo(typer.style(line, bold=True) if k == 0 else line)
