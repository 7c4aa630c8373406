"""Tables of throughputs: both layouts, and what is wrong with others."""

from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from workloads.throughputs import Throughput, read_throughputs

OWN = "application,global_batch,gpu_type,num_gpus,num_nodes,samples_per_s\n"
ARENA = "model,params,global_batch,gpu_type,n_gpus,n_nodes,throughput_sps,ap_feasible\n"


def written(directory: Path, text: str) -> Path:
    path = directory / "speeds.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text", [OWN + "moe-2.4b,256,a100,8,2,12.5\n", ARENA + "moe,2.4B,256,a100,8,2,12.5,1\nmoe,2.4B,256,a100,4,1,7,0\n"]
)
def test_both_layouts_say_the_same(tmp_path: Path, text: str) -> None:
    assert read_throughputs(written(tmp_path, text)) == (
        Throughput(
            application="moe-2.4b", global_batch=256, gpu_type="a100", num_gpus=8, num_nodes=2, samples_per_s=12.5
        ),
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (OWN, "there are no throughputs in the file"),
        (OWN + "m,256,a100,0,1,3\n", ":2: column 'num_gpus' is '0'; must be a whole number from 1 on"),
        (OWN + "m,256,a100,1,1,0\n", ":2: column 'samples_per_s' is '0'; must be a number above 0"),
        (OWN + 2 * "m,256,a100,1,1,3\n", "has m at 256 on 1 x a100, 1 nodes twice"),
        ("gpus,speed\n1,2\n", "no table of throughputs: there is no column 'application' or 'throughput_sps'"),
        ("throughput_sps\n2\n", "there is no column 'model'"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, detail: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        read_throughputs(written(tmp_path, text))
    assert detail in str(caught.value)
