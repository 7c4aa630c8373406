"""What is planned ahead as a document, and back."""

from dataclasses import replace

from api.convert.ahead import ahead_from_document, ahead_to_document
from api.schemas.ahead import AheadPlacementDoc
from models.placement.ahead.parameters import AheadParameters
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Job, Snapshot
from solver.options import SolveOptions
from solver.registry import EXACT
from tests.models.placement.ahead.scenes import DAY_S, cluster, on, wanted
from topology.calendar import CalendarEntry, EntryKind


def test_moves_and_promises_come_back() -> None:
    # a: 1 2 [3]     a1, a2 and b1 were promised in a day; one minipod is cheaper, when who is on a3 is moved to b.
    # b: 1 2
    small = Job(id="small", current=on("a3"), restart_cost_s=3600.0)
    own = CalendarEntry(name="big", kind=EntryKind.RESERVATION, from_s=DAY_S, nodes=("a1", "a2", "b1"))
    big = wanted("big", rows=3, columns=1, latest_start_s=DAY_S)
    snapshot = Snapshot(cluster=cluster(3, 2), jobs=(small, big), calendar=(own,))
    parameters = AheadParameters(alpha=1.0, spread_price=9.0, eviction_price_per_node=10.0)
    found = plan(PlanRequest(snapshot=snapshot, parameters=parameters, options=SolveOptions(solver=EXACT))).plan
    assert found is not None
    (placed,) = found.ahead
    assert placed.promise is not None
    assert (placed.start_s, placed.promise.new_nodes, placed.promise.left_nodes) == (DAY_S, ("a3",), ("b1",))
    assert [move.job_id for move in placed.moves] == ["small"]
    text = ahead_to_document(placed).model_dump_json()
    assert ahead_from_document(AheadPlacementDoc.model_validate_json(text)) == placed
    bare = replace(placed, moves=(), promise=None)
    assert ahead_from_document(ahead_to_document(bare)) == bare
