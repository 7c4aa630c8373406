"""Applications as they were measured: what is read, and what is wrong with files."""

from pathlib import Path

import pytest

from benchmarks.paths import PUBLISHED
from stowplan.errors import FileFormatError
from tests.workloads.profiles import profiles, write_profiles
from workloads.profiles import Epoch, StepTime, read_profiles

_PUBLISHED = PUBLISHED / "sia/profiles"


def test_what_is_read(tmp_path: Path) -> None:
    (profile,) = profiles(tmp_path)
    (measured,) = profile.types
    assert (profile.application, profile.restart_s, profile.slowdown) == ("m", None, 1)
    assert (measured.gpu_type, measured.min_local_batch, measured.max_local_batch) == ("a", 5, 20)
    assert measured.steps[3] == StepTime(
        num_nodes=1, num_replicas=2, local_batch=5, step_time_s=0.6, sync_time_s=0.1, gpus=(2,)
    )
    assert measured.steps[-1] == StepTime(
        num_nodes=3, num_replicas=12, local_batch=10, step_time_s=1.6, sync_time_s=0.6
    )
    assert [validation.batch for validation in profile.validations] == [10, 40]
    assert profile.validations[1].epochs[1] == Epoch(progress=198, squared_norm=1, variance=3)


@pytest.mark.parametrize(
    ("file", "text", "detail"),
    [
        ("placements-a.csv", "placement,local_bsz,step_time,sync_time\n", "there are no steps in the file"),
        (
            "placements-a.csv",
            "placement,local_bsz,step_time,sync_time\n20,5,1,0\n",
            ":2: column 'placement' is '20'; must be GPUs on each node, a digit for each: 44",
        ),
        (
            "placements-a.csv",
            "placement,local_bsz,step_time,sync_time\n2,5,1,1.5\n",
            ":2: column 'sync_time' is 1.5; must be below step_time, which is 1.0",
        ),
        ("placements-a.csv", "placement,local_bsz,sync_time\n2,5,1\n", "there is no column 'step_time'"),
        (
            "scalability-a.csv",
            "num_nodes,num_replicas,local_bsz,step_time,sync_time\n0,4,5,1,0\n",
            ":2: column 'num_nodes' is '0'; must be a whole number from 1 on",
        ),
        ("validation-10.csv", "progress,grad_sqr,grad_var\n", "there are no epochs in the file"),
        (
            "validation-10.csv",
            "progress,grad_sqr,grad_var\n9,1,1\n9,1,1\n",
            ":3: column 'progress' is 9.0; must be above that of the epoch before, 9.0",
        ),
        (
            "validation-10.csv",
            "progress,grad_sqr,grad_var\n9,1,0\n",
            "column 'grad_var' is '0'; must be a number above",
        ),
        ("validation-20.csv", "progress,grad_sqr,grad_var\n9,1,1\n", "has 1 epochs, validation-10.csv 2"),
        ("validation-x.csv", "", "is named after batch 'x'; must be a whole number from 1 on"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, file: str, text: str, detail: str) -> None:
    path = write_profiles(tmp_path) / "m" / file
    path.write_text(text)
    with pytest.raises(FileFormatError) as caught:
        read_profiles(tmp_path, ["m"], ["a"])
    assert detail in str(caught.value)
    assert str(path) in str(caught.value)


def test_folders_that_have_nothing_are_refused(tmp_path: Path) -> None:
    write_profiles(tmp_path)
    with pytest.raises(FileFormatError, match="has no placements of m on h100; there should be files APPLICATION/pl"):
        read_profiles(tmp_path, ["m"], ["h100"])
    for path in (tmp_path / "m").glob("validation-*.csv"):
        path.unlink()
    with pytest.raises(FileFormatError, match=r"has no validation-BATCH\.csv, which tells how long a training is"):
        read_profiles(tmp_path, ["m"], ["a"])


def test_of_applications_that_were_measured_elsewhere_nothing_is_read(tmp_path: Path) -> None:
    """So nothing can be wrong with it."""
    elsewhere = write_profiles(tmp_path) / "n"
    elsewhere.mkdir()
    (elsewhere / "placements-b.csv").write_text("wrong")
    assert [profile.application for profile in read_profiles(tmp_path, ["m", "n"], ["a"])] == ["m"]


@pytest.mark.skipif(not _PUBLISHED.is_dir(), reason="the published data is not there")
def test_published_profiles_are_read() -> None:
    names = ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    read = read_profiles(_PUBLISHED, names, ["aws", "rtx", "dgx-ext"])
    assert [profile.application for profile in read] == names
    # Ranges of batches and numbers of epochs as the released simulator has them.
    ranges = {
        profile.application: (
            profile.validations[0].batch,
            profile.validations[-1].batch,
            len(profile.validations[0].epochs),
        )
        for profile in read
    }
    assert ranges == {
        "bert": (12, 384, 2),
        "cifar10": (128, 4096, 100),
        "deepspeech2": (20, 640, 80),
        "imagenet": (200, 12800, 90),
        "ncf": (256, 32768, 10),
        "yolov3": (8, 512, 50),
    }
