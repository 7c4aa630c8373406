import pytest

from executor.hosts import Host, on_hosts, read_hosts
from stowplan.errors import InputError
from tests.executor.export.jobs import plan_of


def codes(text: str) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as refused:
        read_hosts(text)
    return [(issue.code, issue.pointer) for issue in refused.value.issues]


def test_a_line_per_host_as_deepspeed_mpi_and_slurm_write_it() -> None:
    text = "gpu-1 slots=8\ngpu-2:4  # spare\n\n# none\nnode[08-10].cluster\n"
    assert read_hosts(text) == (
        Host(name="gpu-1", slots=8),
        Host(name="gpu-2", slots=4),
        *(Host(name=f"node{k}.cluster") for k in ("08", "09", "10")),
    )


def test_wrong_lines_are_all_named() -> None:
    assert codes("a\nb;rm\na\nn[1-2]\nn2\nc slots=0\nd e\n") == [
        ("bad_node_name", "/2"),
        ("duplicate_host", "/3"),
        ("duplicate_host", "/5"),
        ("not_positive", "/6"),
        ("bad_node_name", "/7"),
    ]
    assert codes("# nothing\n") == []


def test_hosts_take_the_places_of_nodes_in_the_order_of_ranks() -> None:
    plan = plan_of(pp=2, dp=2, tp=2)
    placed = on_hosts(plan, read_hosts("z slots=4\nb\nspare\n"))
    assert placed.gpus == tuple((host, k) for host in "zb" for k in range(4))
    assert placed.notation() == plan.notation()


def test_too_few_hosts_or_slots() -> None:
    with pytest.raises(InputError, match="8 ranks on 2 nodes; the file names 1 host"):
        on_hosts(plan_of(), read_hosts("a"))
    with pytest.raises(InputError, match="host b has 2 slots; the plan uses GPU 3"):
        on_hosts(plan_of(), read_hosts("a\nb slots=2"))
