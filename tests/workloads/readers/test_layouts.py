"""Tables as their publishers lay them out: lines of the data, or of the README beside them."""

from pathlib import Path

import pytest

from stowplan.errors import FileFormatError
from workloads.readers import read_trace
from workloads.trace import Adaptivity, JobState, Trace

SIA = """\
name,time,application,num_replicas,batch_size,category
cifar10-0,401.0,cifar10,12,4096,adaptive
deepspeech2-0,107,deepspeech2,6,320,scale-gpus
bert-2,811.66189,bert,12,384,rigid
"""
ARENA = """\
job_id,submit_s_abs,submit_s_rel,round_300s,model,params,global_batch,req_gpus,req_gpu_type,num_iteration_trace,\
num_iteration_sim,deadline_abs_trace,deadline_rel_sim
587135_u7f9m,1591032180,3125,10,moe,1.3B,256,8,a40,7210,1442,1591068658.995,182395.0
587131_ujQmo,1591029055,0,0,wide_resnet,6.8B,256,16,a40,9344,1868,1591672193.176,3215690.9
"""
PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,2,5902.0,6214e9
"""
ITP = """\
job_id,submission_time,duration,num_gpu
965d744f-0445-c1a8-12af-97e4c536c66e,1932025,2429,64
"""
# Names and columns of the published pods; gpu_spec is empty in all of them, alternatives stand in other lists.
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0
openb-pod-0001,6000,12288,1,460,V100M16|V100M32,LS,Failed,427061,427100,427070
openb-pod-0017,88000,327680,8,1000,,BE,Pending,9437497,10769854,
openb-pod-0003,4000,8192,0,0,,Burstable,Succeeded,5,9,6
"""
# README of HeliosData.
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,1,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""
# README of AcmeTrace.
SEREN = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00\
,117,32,936.0
5778469,u5907,1,8,128,Other,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08\
:00,2693,13,21544.0
"""
KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,\
fail_time,stop_time,duration,queue,gpu_time
dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023\
-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
dlc1t2ypl09b8qtp,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:28:42+00:00,2023-05-17 11:28:54+00:00,2\
023-05-17 11:30:04+00:00,,2023-05-17 11:30:04+00:00,82,12.0,5248.0
"""
# The example of the README of cluster-trace-gpu-v2020 (600 % + 400 % + 400 % CPU, 0 % + 50 % + 50 % GPU), with times.
PAI_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
PAI = """\
job_0,ps,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,,MISC
job_0,worker,2.0,Terminated,1739165.0,1739300.0,400.0,29.296875,50.0,MISC
job_1,tensorflow,4.0,Failed,1739000.0,1739500.0,600.0,29.296875,200.0,V100
job_2,tensorflow,1.0,Running,1739100.0,,600.0,29.296875,100.0,T4
job_3,tensorflow,1.0,Waiting,,,600.0,29.296875,100.0,T4
"""

TABLES = {
    "sia": SIA,
    "arena": ARENA,
    "philly": PHILLY,
    "itp": ITP,
    "openb": OPENB,
    "helios": HELIOS,
    "acme": SEREN,
    "pai": PAI_HEADER + PAI,
}


def _read(tmp_path: Path, text: str, format_: str | None = None) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return read_trace(path, format_=format_)


def test_sia(tmp_path: Path) -> None:
    trace = _read(tmp_path, SIA)
    facts = [(job.id, job.submit_s, job.num_gpus, job.global_batch, job.adaptivity) for job in trace.jobs]
    # The trace begins at its own zero, not at its first job.
    assert facts == [
        ("deepspeech2-0", 107.0, 6, 320, Adaptivity.SCALE_GPUS),
        ("cifar10-0", 401.0, 12, 4096, Adaptivity.ADAPTIVE),
        ("bert-2", 811.66189, 12, 384, Adaptivity.RIGID),
    ]
    assert [job.application for job in trace.jobs] == ["deepspeech2", "cifar10", "bert"]


def test_arena(tmp_path: Path) -> None:
    first, second = _read(tmp_path, ARENA).jobs
    assert (first.id, first.submit_s, first.num_gpus, first.gpu_type) == ("587131_ujQmo", 0.0, 16, "a40")
    assert (first.application, first.iterations, first.deadline_s) == ("wide-resnet-6.8b", 1868.0, 3215690.9)
    assert (second.application, second.global_batch) == ("moe-1.3b", 256)


def test_philly(tmp_path: Path) -> None:
    trace = _read(tmp_path, PHILLY)
    facts = [(job.id, job.submit_s, job.num_gpus, job.duration_s, job.queue) for job in trace.jobs]
    assert facts == [("job-2", 0.0, 2, 2951.0, "6214e9"), ("job-1", 2932.0, 1, 66.0, "11cb48")]
    assert trace.origin_s == 1507529583.0  # 2017-10-09 06:13:03 UTC


def test_itp(tmp_path: Path) -> None:
    (job,) = _read(tmp_path, ITP).jobs
    assert (job.submit_s, job.num_gpus, job.duration_s) == (1932025.0, 64, 2429.0)


def test_openb(tmp_path: Path) -> None:
    jobs = {job.id: job for job in _read(tmp_path, OPENB).jobs}
    running, failed = jobs["openb-pod-0000"], jobs["openb-pod-0001"]
    assert (running.duration_s, running.state, running.gpu_share) == (12537496.0, JobState.RUNNING, 1.0)
    assert (failed.duration_s, failed.waited_s, failed.gpu_share) == (30.0, 9.0, 0.46)
    assert (failed.gpu_type, failed.queue) == ("V100M16|V100M32", "LS")
    pending = jobs["openb-pod-0017"]
    assert (pending.duration_s, pending.waited_s, pending.state) == (None, None, JobState.WAITING)
    assert (jobs["openb-pod-0003"].num_gpus, jobs["openb-pod-0003"].gpu_share) == (0, 1.0)


def test_helios(tmp_path: Path) -> None:
    trace = _read(tmp_path, HELIOS)
    facts = [(job.id, job.submit_s, job.num_gpus, job.duration_s, job.state) for job in trace.jobs]
    assert facts == [
        ("1425511", 0.0, 1, 36848.0, JobState.COMPLETED),
        ("1425512", 26.0, 4, 249.0, JobState.FAILED),
        ("1425513", 27.0, 1, 675233.0, JobState.CANCELED),
    ]
    assert [(job.user, job.queue, job.num_nodes, job.waited_s) for job in trace.jobs][1] == ("uVMrF", "vchbv", 1, 0.0)


def test_acme_counts_durations_from_the_start_in_both_clusters(tmp_path: Path) -> None:
    seren, kalos = _read(tmp_path, SEREN), _read(tmp_path, KALOS)
    assert [(job.duration_s, job.waited_s) for job in seren.jobs] == [(117.0, 32.0), (2693.0, 13.0)]
    assert [(job.duration_s, job.waited_s) for job in kalos.jobs] == [(8.0, 10.0), (70.0, 12.0)]
    assert [(job.num_gpus, job.num_nodes, job.application) for job in kalos.jobs] == [(64, 8, "Other")] * 2
    assert seren.origin_s == 1677601102.0  # 2023-02-28 16:18:22 UTC


@pytest.mark.parametrize("header", ["", PAI_HEADER], ids=["as published", "with a header"])
def test_pai(tmp_path: Path, header: str) -> None:
    trace = _read(tmp_path, header + PAI, "pai")
    facts = [(job.id, job.submit_s, job.num_gpus, job.gpu_share, job.duration_s, job.state) for job in trace.jobs]
    assert facts == [
        ("job_1", 1739000.0, 8, 1.0, 500.0, JobState.FAILED),
        ("job_2", 1739100.0, 1, 1.0, None, JobState.RUNNING),
        ("job_0", 1739162.0, 2, 0.5, 138.0, JobState.COMPLETED),
    ]
    assert [job.gpu_type for job in trace.jobs] == ["V100", "T4", "MISC"]
    assert trace.left_out == {"jobs that were not launched": 1}


@pytest.mark.parametrize(
    ("format_", "old", "new", "detail"),
    [
        ("sia", "401.0", "soon", "trace.csv:2: column 'time' is 'soon'; must be a number from 0 on"),
        ("sia", ",12,4096", ",1.5,4096", "trace.csv:2: column 'num_replicas' is '1.5'; must be a whole number"),
        ("sia", "rigid", "stiff", "trace.csv:4: column 'category' is 'stiff'; must be one of adaptive, scale-gpus"),
        ("sia", "bert-2", "cifar10-0", "trace.csv:4: column 'name' is 'cifar10-0', which is already in line 2"),
        ("sia", "bert-2", "", "trace.csv:4: column 'name' is empty; must be the id of a job"),
        ("arena", ",1868,", ",0,", "trace.csv:3: column 'num_iteration_sim' is '0'; must be a number above 0"),
        ("arena", "3215690.9", "1e999", "column 'deadline_rel_sim' is '1e999'; must be a number above 0"),
        (
            "philly",
            "2017-10-09 06:13:03",
            "9.10.2017",
            "trace.csv:3: column 'timestamp' is '9.10.2017'; must be a time",
        ),
        ("philly", "2951.0,2", "-5,2", "trace.csv:3: column 'duration' is '-5'; must be a number from 0 on"),
        ("itp", "2429,64", "2429,6_4", "trace.csv:2: column 'num_gpu' is '6_4'; must be a whole number"),
        ("itp", "2429,64", "2429", "trace.csv:2: has 3 cells; there are 4 columns"),
        ("openb", "1,1000,", "1,0,", "trace.csv:2: column 'gpu_milli' is 0; must be from 1 to 1000"),
        ("openb", "Failed", "Lost", "trace.csv:3: column 'pod_phase' is 'Lost'; must be a state: completed,"),
        ("helios", "vchbv,4", "vchbv,four", "trace.csv:3: column 'gpu_num' is 'four'"),
        ("acme", "2023-03-01 00:18:22+08:00", "", "trace.csv:2: column 'submit_time' is empty; must be a time"),
        ("pai", "2.0,Terminated", "two,Terminated", "trace.csv:3: column 'inst_num' is 'two'"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_column(
    tmp_path: Path, format_: str, old: str, new: str, detail: str
) -> None:
    assert old in TABLES[format_]
    with pytest.raises(FileFormatError, match=detail):
        _read(tmp_path, TABLES[format_].replace(old, new), format_)
