"""Readers of measurements: what samples say, and files that are wrong."""

from pathlib import Path

import pytest

from models.measured import Bandwidth, Finding, Training, read_measured_file
from models.measured.bandwidths import told_bandwidth
from models.performance.iteration.adjustment import Adjustment
from models.performance.iteration.priors import priors
from stowplan.errors import FileFormatError, InputError
from tests.models.measured.samples import IB, NCCL, megatron, nemo, torchtitan
from topology.gpu_catalogue import find_product, gpu_type_of

H100 = gpu_type_of(find_product("h100"), "bf16")
SLOW_START = [900.0, 30.0, 20.0]


def read(text: str, tmp_path: Path) -> Finding:
    file = tmp_path / "output.txt"
    file.write_text(text, encoding="utf-8")
    return read_measured_file(file)


def test_bandwidths(tmp_path: Path) -> None:
    assert read(NCCL, tmp_path) == Bandwidth(bytes_per_s=449.01e9, num_nodes=1, saturation_bytes=8589934592)
    two = NCCL.replace("Pid  12345 on     node01 device  1", "Pid  77 on     node02 device  0")
    assert read(two, tmp_path) == Bandwidth(bytes_per_s=449.01e9, num_nodes=2, saturation_bytes=8589934592)
    found = read(IB, tmp_path)
    assert found == Bandwidth(bytes_per_s=394.18e9 / 8, num_nodes=2, saturation_bytes=65536, is_port=True)
    found = read(IB.replace("Gb/sec", "MiB/sec"), tmp_path)
    assert isinstance(found, Bandwidth)
    assert found.bytes_per_s == pytest.approx(394.18 * 2**20)


def test_trainings(tmp_path: Path) -> None:
    times = [*SLOW_START, 4.0, 4.2, 4.1, 9.0, 4.1]
    assert read(megatron([1e3 * time for time in times]), tmp_path) == Training(
        num_iterations=5, iteration_s=4.1, global_batch=64
    )
    assert read(nemo(times), tmp_path) == Training(num_iterations=5, iteration_s=4.1, global_batch=64)
    assert read(torchtitan([100, 3000, 5000, 5762, 5762, 5762, 5762, 5762]), tmp_path) == Training(
        num_iterations=5, tokens_per_s=5762.0
    )


def test_of_several_batches_the_usual_one_counts(tmp_path: Path) -> None:
    found = read(megatron([1.0] * 6, batch=32) + "\n" + megatron([4000.0] * 9), tmp_path)
    assert found == Training(num_iterations=9, iteration_s=4.0, global_batch=64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is none of: nccl-tests, ib_write_bw, megatron"),
        ("loss 3.2\n", "is none of"),
        (megatron([4000.0] * 7), "has 4 settled iterations behind the first 3"),
        (megatron([4000.0] * 7 + [-1.0]), "has an iteration with -0.001"),
        (nemo([0.0] * 8), "above 0"),
        (torchtitan([0] * 8), "above 0"),
        ("\n".join(NCCL.splitlines()[:9]), "no row with a bus bandwidth"),
        ("\n".join(IB.splitlines()[:6]), "no row with a bandwidth"),
    ],
)
def test_files_that_say_too_little(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"output\.txt") as caught:
        read(text, tmp_path)
    assert message in caught.value.detail


def test_a_bandwidth_becomes_a_factor(tmp_path: Path) -> None:
    found = read(NCCL, tmp_path)
    assert isinstance(found, Bandwidth)
    adjustment, sentence = told_bandwidth(Adjustment(), found, H100, num_ports=8)
    share = 449.01e9 / H100.intra_node_bandwidth_bytes_per_s
    # Between what was thought and what the test says.
    assert sorted([1.0, adjustment.link, priors().link / share])[1] == adjustment.link
    assert (adjustment.computation, adjustment.network) == (1.0, 1.0)
    assert adjustment.spread()[3, 3] < Adjustment().spread()[3, 3]
    assert "links inside nodes reach 449 GB/s" in sentence
    network, _ = told_bandwidth(
        Adjustment(), Bandwidth(bytes_per_s=49e9, num_nodes=2, saturation_bytes=1.0, is_port=True), H100, num_ports=8
    )
    assert network.link == 1.0
    assert network.network != 1.0


def test_bandwidths_of_other_links() -> None:
    with pytest.raises(InputError, match="of other links"):
        told_bandwidth(Adjustment(), Bandwidth(bytes_per_s=1e13, num_nodes=1, saturation_bytes=1.0), H100, num_ports=8)
    with pytest.raises(InputError, match="--nodes"):
        told_bandwidth(
            Adjustment(), Bandwidth(bytes_per_s=1e11, num_nodes=None, saturation_bytes=1.0), H100, num_ports=8
        )
