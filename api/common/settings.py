"""Settings of the service. Everything about one stands here: name, kind, default, meaning, and its option, if any.

`api.common.environment` reads them from variables, `stowplan serve` makes options of them.
"""

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.common.setting_kinds import (
    IN_MEMORY,
    LOCAL,
    POSTGRESQL,
    AllowedHosts,
    Count,
    Database,
    Days,
    Endpoint,
    Engine,
    Number,
    Port,
    Rate,
    Seconds,
    Share,
    Token,
)
from stowplan.errors import InputError


@dataclass(frozen=True, slots=True)
class Flag:
    """The option of `stowplan serve` for a setting. One without is for whoever writes unit files, or a secret."""

    name: str


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Settings(BaseModel):
    """What the service is set to; a setting `x` can be given as the variable STOWPLAN_X.

    Raises
    ------
    InputError
        When a value is out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: Annotated[str, Flag("--host"), Field(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, Flag("--port"), Field(description="Port to listen on; 0 for any free one.")] = 8080
    allowed_hosts: Annotated[
        AllowedHosts,
        Flag("--allowed-hosts"),
        Field(
            description="Names under which clients reach the service, with commas between them; localhost, the "
            "machine's name, --host and IP addresses always are."
        ),
    ] = ""
    # May have a password in it, and is not in the text of settings, which may be logged.
    database: Annotated[
        Database,
        Flag("--database"),
        Field(repr=False, description="SQLite file, :memory:, or postgresql://user@host/name."),
    ] = "stowplan.sqlite"
    # None by default, since whoever may deploy runs processes here.
    deployments: Annotated[
        str,
        Flag("--deployments"),
        Field(description="Folder of deployments; without it the service deploys nothing."),
    ] = ""
    launch_pythons: Annotated[
        str, Field(description="Interpreters that deployments may name, with : between them, beside the usual one.")
    ] = ""
    # No programs, libraries and files: to whoever sets those, the service would lend its rights.
    launch_variables: Annotated[
        str,
        Field(
            description="Variables that deployments may set, with commas between them; * stands for letters, digits, "
            "- and _."
        ),
    ] = (
        "NCCL_DEBUG,NCCL_DEBUG_SUBSYS,NCCL_ALGO,NCCL_PROTO,NCCL_BUFFSIZE,NCCL_MIN_NCHANNELS,NCCL_MAX_NCHANNELS,"
        "NCCL_CROSS_NIC,NCCL_P2P_DISABLE,NCCL_P2P_LEVEL,NCCL_SHM_DISABLE,NCCL_NVLS_ENABLE,NCCL_NET_GDR_LEVEL,"
        "NCCL_SOCKET_IFNAME,NCCL_SOCKET_FAMILY,NCCL_SOCKET_NTHREADS,NCCL_NSOCKS_PERTHREAD,NCCL_IB_DISABLE,NCCL_IB_HCA,"
        "NCCL_IB_GID_INDEX,NCCL_IB_TC,NCCL_IB_SL,NCCL_IB_TIMEOUT,NCCL_IB_RETRY_CNT,NCCL_IB_QPS_PER_CONNECTION,"
        "GLOO_SOCKET_IFNAME,OMP_NUM_THREADS,MKL_NUM_THREADS,CUDA_LAUNCH_BLOCKING,CUDA_DEVICE_MAX_CONNECTIONS,"
        "NVIDIA_TF32_OVERRIDE,PYTORCH_CUDA_ALLOC_CONF,TORCH_DISTRIBUTED_DEBUG,TORCH_NCCL_ASYNC_ERROR_HANDLING"
    )
    launch_hosts: Annotated[
        str,
        Field(
            description="Hosts (or user@host) that deployments may reach by SSH or at addresses of their own, with "
            "commas between them; * as in launch_variables. Without it, none."
        ),
    ] = ""
    launch_commands: Annotated[
        str,
        Field(
            description="First words of training programs that deployments may start in place of the trainer, such as "
            "`/opt/run.sh,/opt/python /opt/train.py`, with commas between them. Without it, none."
        ),
    ] = ""
    layers_hooks: Annotated[
        str,
        Field(description="Hooks (module:function) for layers that deployments may name, with commas between them."),
    ] = ""
    launch_images: Annotated[
        str, Field(description="Images that deployments under Kubernetes may name, with commas between them.")
    ] = ""
    data_folders: Annotated[
        str,
        Field(
            description="Folders that token files and weights of deployments must lie below, with : between them; "
            "without it, the folder of deployments."
        ),
    ] = ""
    secrets: Annotated[
        str,
        Field(
            description="Folder with a file for each variable that deployments may get as a secret, named as the "
            "variable, on every host under the same path; without it, none."
        ),
    ] = ""
    keep_days: Annotated[
        Seconds,
        Flag("--keep-days"),
        Field(description="Days for which plans, comparisons, replays and snapshots are kept when they are final."),
    ] = 365.0
    keep_plans: Annotated[Count, Flag("--keep-plans"), Field(description="Most final plans that are kept.")] = 1_000_000
    keep_events_days: Annotated[
        Seconds, Field(description="Days for which the events of final plans are kept (incumbents and bounds).")
    ] = 90.0
    keep_metrics_days: Annotated[
        Seconds, Field(description="Days for which steps of a launch are kept that measures nothing any more.")
    ] = 365.0
    keep_steps: Annotated[Count, Field(description="Most steps of a launch that are kept.")] = 1_000_000
    keep_audit_days: Annotated[Seconds, Field(description="Days for which entries of the audit log are kept.")] = 730.0
    # They may hold the only checkpoint.
    keep_deployments_days: Annotated[
        Days,
        Field(description="Days for which folders of deployments that are over are kept; 0: for ever."),
    ] = 0.0
    keep_deployments: Annotated[
        Number, Field(description="Most deployments that are over whose folders are kept; 0: any number.")
    ] = 0
    catalogue: Annotated[str, Flag("--catalogue"), Field(description="TOML file with GPUs and models of your own.")] = (
        ""
    )
    workers: Annotated[Count, Flag("--workers"), Field(description="Solves at a time.")] = 2
    engine: Annotated[
        Engine,
        Flag("--engine"),
        Field(description="Where workers run: local, or ray, on the nodes of a Ray cluster (extra `ray`)."),
    ] = LOCAL
    ray_address: Annotated[
        str,
        Flag("--ray-address"),
        Field(
            description="Ray cluster of the engine ray: auto for the one that this machine is a node of, HOST:PORT of "
            "its head, or local for one of its own on this machine."
        ),
    ] = "auto"
    queue_size: Annotated[Count, Flag("--queue-size"), Field(description="Plans that may wait.")] = 256
    comparison_queue_size: Annotated[
        Count, Field(description="Comparisons of solvers that may wait for the one that runs.")
    ] = 8
    replay_queue_size: Annotated[
        Count, Field(description="Requests for replays that may wait for the one that runs.")
    ] = 8
    replay_processes: Annotated[
        Count, Flag("--replay-processes"), Field(description="Replays at a time, beside the solves.")
    ] = 2
    max_replays: Annotated[Count, Field(description="Most replays of a request: policies times seeds.")] = 100
    max_replay_jobs: Annotated[Count, Field(description="Most jobs of a trace that is replayed.")] = 20_000
    replay_time_limit_s: Annotated[
        Seconds, Field(description="Wall-clock seconds for each replay of a request that names no limit.")
    ] = 600.0
    max_replay_time_limit_s: Annotated[
        Seconds, Field(description="Most wall-clock seconds for each replay that a request may ask for.")
    ] = 3600.0
    training_queue_size: Annotated[
        Count, Field(description="Forecasters that may wait for the one that is trained.")
    ] = 8
    training_time_limit_s: Annotated[
        Seconds, Field(description="Wall-clock seconds for training a forecaster whose request names no limit.")
    ] = 600.0
    max_training_time_limit_s: Annotated[
        Seconds, Field(description="Most wall-clock seconds for training a forecaster that a request may ask for.")
    ] = 3600.0
    tasks_per_worker: Annotated[
        Count, Field(description="Tasks after which a worker is replaced, which bounds what leaks.")
    ] = 1000
    worker_start_s: Annotated[
        Seconds, Field(description="How long a worker may take to start; each failure doubles it, up to 600.")
    ] = 60.0
    worker_start_attempts: Annotated[
        Count,
        Field(
            description="Starts in a row that fail before nothing new is taken and `/healthz` fails; they go on, and "
            "what waits keeps waiting."
        ),
    ] = 5
    max_body_bytes: Annotated[Count, Flag("--max-body-bytes"), Field(description="Largest request body.")] = 32 * 2**20
    readers: Annotated[
        Count, Field(description="Processes that read large request bodies while all workers solve.")
    ] = 1
    # Read within some ten milliseconds, whatever it holds; to hand it over would take longer.
    small_body_bytes: Annotated[
        Count,
        Field(
            description="Up to this size a request body is read by the process that serves, unless an idle worker "
            "keeps what it changes."
        ),
    ] = 64 * 2**10
    read_s: Annotated[
        Seconds, Field(description="How long a large request body may wait to be read and take, together.")
    ] = 60.0
    max_bodies_bytes: Annotated[
        Count, Field(description="Most bytes of request bodies at a time, all requests together.")
    ] = 128 * 2**20
    header_timeout_s: Annotated[Seconds, Field(description="How long the head of a request may take to come.")] = 10.0
    body_timeout_s: Annotated[Seconds, Field(description="How long the body of a request may take to come.")] = 60.0
    max_connections: Annotated[
        Count, Field(description="Connections at a time; on a few more, health checks and metrics are answered.")
    ] = 512
    max_wait_s: Annotated[Seconds, Field(description="Cap of `Prefer: wait`.")] = 60.0
    time_limit_s: Annotated[
        Seconds, Flag("--time-limit"), Field(description="Seconds for a solve that names no limit.")
    ] = 60.0
    max_time_limit_s: Annotated[
        Seconds, Flag("--max-time-limit"), Field(description="Most seconds that a request may ask for.")
    ] = 3600.0
    max_threads: Annotated[
        Count, Flag("--max-threads"), Field(description="Most threads that a request may ask for.")
    ] = 8
    deadline_slack_s: Annotated[
        Seconds,
        Field(
            description="How long a worker may take beyond the time limit of its solve (build, placement, check) "
            "before it is killed."
        ),
    ] = 60.0
    heartbeat_s: Annotated[Seconds, Field(description="Seconds between signs of life on a quiet stream.")] = 15.0
    shutdown_s: Annotated[
        Seconds,
        Field(description="How long running solves may take to come back with their best plan when the service stops."),
    ] = 5.0
    # Not in the text of settings, which may be logged.
    token: Annotated[
        Token,
        Field(
            repr=False,
            description="Token of the operator, an admin, for `Authorization: Bearer ...` to everything under /v1; "
            "without it, and without tokens of clients in the database, nobody is asked for one.",
        ),
    ] = None

    client_share: Annotated[
        Share,
        Field(
            description="Share of the plans that run or wait, and of the bytes of request bodies at a time, that one "
            "client may have; at least one of each, at 1 all."
        ),
    ] = 1.0
    client_requests_per_s: Annotated[
        Rate, Field(description="Requests that a client may send every second, on average; 0: as many as it likes.")
    ] = 0.0
    client_burst: Annotated[
        Count, Field(description="Requests that a client may send at once before that average counts.")
    ] = 100
    access_log: Annotated[
        bool,
        Flag("--access-log"),
        Field(description="Write a line of JSON for every request to standard output."),
    ] = False
    otlp_endpoint: Annotated[
        Endpoint,
        Flag("--otlp-endpoint"),
        Field(
            description="OpenTelemetry collector that gets traces of requests and plans by OTLP over HTTP, such as "
            "http://127.0.0.1:4318; it needs the extra otel."
        ),
    ] = ""
    tls_certificate: Annotated[
        str, Flag("--tls-certificate"), Field(description="PEM file with the certificate chain; with it, HTTPS only.")
    ] = ""
    tls_key: Annotated[
        str, Flag("--tls-key"), Field(description="PEM file with the private key of the certificate, unencrypted.")
    ] = ""
    insecure: Annotated[
        bool, Flag("--insecure"), Field(description="Listen without a token on an address that others reach.")
    ] = False

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        if self.time_limit_s > self.max_time_limit_s:
            limits = f"time_limit_s is {self.time_limit_s}, above max_time_limit_s {self.max_time_limit_s}"
            raise InputError(f"{limits}; lower the one or raise the other")
        if self.replay_time_limit_s > self.max_replay_time_limit_s:
            limits = f"replay_time_limit_s is {self.replay_time_limit_s}, above max_replay_time_limit_s"
            raise InputError(f"{limits} {self.max_replay_time_limit_s}; lower the one or raise the other")
        if self.training_time_limit_s > self.max_training_time_limit_s:
            limits = f"training_time_limit_s is {self.training_time_limit_s}, above max_training_time_limit_s"
            raise InputError(f"{limits} {self.max_training_time_limit_s}; lower the one or raise the other")
        if self.max_body_bytes > self.max_bodies_bytes:
            limits = f"max_body_bytes is {self.max_body_bytes}, above max_bodies_bytes {self.max_bodies_bytes}"
            raise InputError(f"{limits}; lower the one or raise the other")
        return self

    @model_validator(mode="after")
    def _strangers_need_a_token(self) -> Self:
        if self.token is None and not self.insecure and not _is_loopback(self.host):
            raise InputError(
                f"host is {self.host}, which others reach, and there is no token: whoever can connect could plan, and "
                "deploy; set STOWPLAN_TOKEN, listen on 127.0.0.1, or say --insecure where a proxy in front asks for one"
            )
        return self

    @model_validator(mode="after")
    def _both_files_of_tls(self) -> Self:
        if bool(self.tls_certificate) != bool(self.tls_key):
            missing = "tls_key" if self.tls_certificate else "tls_certificate"
            raise InputError(f"{missing} is missing; TLS needs the certificate and its key")
        return self

    @property
    def host_names(self) -> frozenset[str]:
        """Names under which the service is asked, in lower case."""
        names = ["localhost", self.host, socket.gethostname(), *self.allowed_hosts.split(",")]
        return frozenset(name.strip().lower() for name in names if name)

    @property
    def database_location(self) -> Path | str | None:
        """File of the database; None for one in memory; a text is the URL of one on PostgreSQL."""
        if self.database.startswith(POSTGRESQL):
            return self.database
        return None if self.database == IN_MEMORY else Path(self.database)

    @property
    def holds_secrets(self) -> bool:
        """Whether a setting must not be read by others: the token, or a database whose URL may have a password."""
        return self.token is not None or self.database.startswith(POSTGRESQL)

    @property
    def deployments_folder(self) -> Path | None:
        """Folder of the deployments; None where the service deploys nothing."""
        return Path(self.deployments).resolve() if self.deployments else None

    @property
    def secrets_folder(self) -> Path | None:
        """Folder of the secrets; None where there are none."""
        return Path(self.secrets).resolve() if self.secrets else None
