"""Every native status means something here, and nothing unproved means a proof."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import highspy
import pyscipopt

from solver.backends import highs, scip
from solver.result import Limit, TerminationReason


def test_every_highs_status_is_mapped() -> None:
    assert set(highs.ENDINGS) == set(highspy.HighsModelStatus.__members__.values())


def test_every_scip_status_is_mapped() -> None:
    # The strings of Model.getStatus are the names of the enumeration in lower case.
    members = {name.lower() for name in dir(pyscipopt.SCIP_STATUS) if not name.startswith("_")}
    assert set(scip.ENDINGS) == members


def test_scip_strings_are_those_of_the_library() -> None:
    source = Path(pyscipopt.__file__).with_name("scip.pxi").read_text()
    body = source[source.index("Retrieve solution status") :]
    body = body[: body.index("    def ")]
    assert set(re.findall(r'return\s+"(\w+)"', body)) == set(scip.ENDINGS)


def test_proofs_are_few() -> None:
    def proofs(endings: Mapping[Any, TerminationReason | Limit]) -> set[object]:
        proved = (TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE, TerminationReason.UNBOUNDED)
        return {status for status, ending in endings.items() if ending in proved}

    status = highspy.HighsModelStatus
    assert proofs(highs.ENDINGS) == {status.kOptimal, status.kInfeasible, status.kUnbounded}
    assert proofs(scip.ENDINGS) == {"optimal", "gaplimit", "infeasible", "unbounded"}
    # A feasible end is decided by the point alone.
    for ending in (*highs.ENDINGS.values(), *scip.ENDINGS.values()):
        assert ending not in (TerminationReason.FEASIBLE, TerminationReason.NO_SOLUTION_FOUND)
