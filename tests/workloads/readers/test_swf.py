import pytest

from stowplan.errors import FileFormatError
from workloads.readers.swf import read_swf
from workloads.trace import JobState, Trace

# Header and lines as the definition of the format has them.
SAMPLE = """\
; Version: 2.2
; UnixStartTime: 1000000000
; MaxProcs: 128
;
  1      0   10  300   8  -1   -1   16   600   -1  1   3   1   5   0   1  -1  -1
  2     60   -1   -1  -1  -1   -1    4    -1   -1  5  -1  -1  -1   2  -1  -1  -1
  3   60.5    0 12.5   1  -1   -1   -1    60   -1  0   3   1   5   0   1   1  30
  4     70    0  100   2  -1   -1    2   100   -1  1   3   1   5   0   1  -1  -1
  4     70    0   40   2  -1   -1    2   100   -1  2   3   1   5   0   1  -1  -1
  4     70    0   60   2  -1   -1    2   100   -1  3   3   1   5   0   1  -1  -1
"""


def _read(text: str) -> Trace:
    return read_swf(text, "log.swf", "log")


def test_a_log() -> None:
    trace = _read(SAMPLE)
    facts = [(job.id, job.submit_s, job.num_gpus, job.duration_s, job.waited_s) for job in trace.jobs]
    assert facts == [
        ("1", 0.0, 8, 300.0, 10.0),
        # Canceled while it waited: what it asked for counts.
        ("2", 60.0, 4, None, None),
        ("3", 60.5, 1, 12.5, 0.0),
        ("4", 70.0, 2, 100.0, 0.0),
    ]
    states = [JobState.COMPLETED, JobState.CANCELED, JobState.FAILED, JobState.COMPLETED]
    assert [job.state for job in trace.jobs] == states
    assert [(job.user, job.application, job.queue) for job in trace.jobs][:2] == [("3", "5", "0"), (None, None, "2")]
    assert [job.time_limit_s for job in trace.jobs] == [600.0, None, 60.0, 100.0]
    assert (trace.origin_s, trace.left_out) == (1000000000.0, {"parts of jobs": 2})


_LINE = "1 0 10 300 8 -1 -1 8 600 -1 1 3 1 5 0 1 -1 -1"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("; nothing\n", "log.swf: there are no jobs"),
        (";\n1 2 3\n", "log.swf:2: has 3 fields; a job has 18"),
        (_LINE.replace("300", "long"), r"log.swf:1: field 4 \(run time\) is 'long'; must be a number from 0 on, or -1"),
        (_LINE.replace("300", "-2"), r"log.swf:1: field 4 \(run time\) is '-2'"),
        (_LINE.replace("300", "nan"), r"log.swf:1: field 4 \(run time\) is 'nan'"),
        (_LINE.replace("1 0 10", "1 -1 10"), "log.swf:1: has no job number or submit time"),
        (_LINE.replace(" 8 ", " -1 "), "log.swf:1: has neither allocated nor requested processors"),
        (_LINE.replace("-1 1 3", "-1 9 3"), r"log.swf:1: field 11 \(status\) is 9"),
        (f"{_LINE}\n{_LINE}\n", "log.swf:2: job number 1 is already in line 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, detail: str) -> None:
    with pytest.raises(FileFormatError, match=detail):
        _read(text)
