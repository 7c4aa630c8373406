"""The native engine under the launchers of clusters: plans that are not symmetric, and a training that grows to one."""

import getpass
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.service.growing_scene import Loop, cluster_of, long_job
from executor.bundle import write_bundle
from executor.change import Change
from executor.deployed.submission import Submission
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.extra import missing_extra
from executor.launch.base import LaunchBackend, RunState, report_of
from executor.launch.slurm import SlurmBackend
from executor.launch.slurm_options import SlurmOptions
from executor.launch.ssh import SshBackend
from executor.metrics import metrics_path, read_metrics
from executor.training_job import Device, EngineName
from models.parallel_plan import ParallelPlan, Replica, Stage
from tests.executor.deployed.test_growing import MODEL, SCHEDULE, pretending
from tests.executor.jobs import tiny_job
from tests.executor.launch.slurm_cluster import NODES, missing
from tests.executor.pretend_training import HURRY_FILE
from tests.executor.trainer.forking import forking
from tests.executor.trainer.reference import reference
from tests.ports import free_port
from tests.waiting import eventually
