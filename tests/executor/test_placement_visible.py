"""Arnold's placement on hosts with a real network between them: network namespaces under a narrow spine.

Such a network trains in `launch/test_slurm.py`; with and without Slurm in `python -m benchmarks placement-visible`.
"""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import permutations

import pytest

from benchmarks.placement.namespaces import LeafSpine, NamespaceError, leaf_spine, obstacle
from benchmarks.placement.placement_choices import Scene, adversarial, affinity, arnold
from benchmarks.placement.placement_visible import LEAVES, main

# So narrow that what crosses the spine takes longer than all computation, however busy the machine is.
NARROW = LeafSpine(leaves=LEAVES, host_bits_per_s=1e9, uplink_bits_per_s=100e6)
PP2_DP2 = Scene(layout=NARROW, pp=2, dp=2)
DP4 = Scene(layout=NARROW, pp=1, dp=4)


@pytest.fixture(scope="module")
def network_possible() -> None:
    reason = obstacle()
    if reason is not None:
        pytest.skip(f"needs network namespaces: {reason}")


def own_namespaces() -> list[str]:
    names = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True).stdout
    return [name for name in names.splitlines() if name.startswith(f"stowplan-{os.getpid()}-")]


#  leaf a: n1 n3, leaf b: n2 n4
@pytest.mark.parametrize(("scene", "crossings", "most"), [(PP2_DP2, 2, 6), (DP4, 2, 4)])
def test_arnold_keeps_data_parallel_neighbours_under_a_leaf(scene: Scene, crossings: int, most: int) -> None:
    everything = {order: scene.crossings(order) for order in permutations(("n1", "n2", "n3", "n4"))}
    assert (min(everything.values()), max(everything.values())) == (crossings, most)
    assert everything[arnold(scene)] == crossings
    assert everything[adversarial(scene)] == most


def test_gradients_outweigh_activations_in_this_job() -> None:
    assert affinity(PP2_DP2) > 0.5
    # Four replicas fit under no leaf: neither kind of group has anything to gain.
    assert affinity(DP4) == 0.5
    # Four stages in a row gain from short ways, but no pipeline fits under a leaf either.
    assert affinity(Scene(layout=NARROW, pp=4, dp=1)) == 0.5


@pytest.mark.usefixtures("network_possible")
def test_hosts_reach_each_other_and_only_what_crosses_leaves_is_counted() -> None:
    def ping(source: str, target: str) -> None:
        send = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes(1000), ('{target}', 9))"
        subprocess.run([*network.enter(source), sys.executable, "-c", send], check=True)

    with leaf_spine(NARROW) as network:
        before = network.uplink_bytes()
        ping("n1", network.addresses["n3"])
        inside = network.uplink_bytes() - before
        ping("n1", network.addresses["n2"])
        assert network.uplink_bytes() - before - inside >= 1000
        assert inside < 1000
        assert len(own_namespaces()) == 5
    assert own_namespaces() == []


@pytest.mark.usefixtures("network_possible")
def test_a_network_that_cannot_be_built_is_taken_down() -> None:
    # A rate of nothing is refused by tc, behind the first namespaces.
    with pytest.raises(NamespaceError, match="tc -n "), leaf_spine(replace(NARROW, uplink_bits_per_s=0.0)):
        raise AssertionError("the network is up")
    assert own_namespaces() == []


def test_the_script_says_why_it_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main(python="/bin/false")
    assert capsys.readouterr().out.startswith("skipped: /bin/false has no torch and deepspeed")
    monkeypatch.setenv("PATH", "/nowhere")
    assert obstacle() == "there is no ip, tc, nsenter here (Debian: iproute2, util-linux)"
