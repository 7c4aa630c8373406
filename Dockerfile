# What hosts need that train: agents, ranks, our trainer, `stowplan_metrics`. Kubernetes takes it where `launch.image` of
# a deployment names no other:
#
#     docker build --tag stowplan-executor:latest .
FROM python:3.11-slim-bookworm

# Triton, with which torch compiles kernels for GPUs, needs a C compiler.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/stowplan
COPY pyproject.toml setup.py README.md LICENSE stowplan_metrics.py ./
COPY shipping shipping
COPY stowplan stowplan
COPY topology topology
COPY workloads workloads
COPY solver solver
COPY models models
COPY executor executor
COPY api api
# Without operators that would have to be compiled; torch brings CUDA. The versions stand in pyproject.toml.
# hadolint ignore=DL3013
RUN DS_BUILD_OPS=0 pip install --no-cache-dir ".[executor]"

# Rooms are under `stowplan.` here; services that run from a checkout start agents and ranks by the names of the tree.
RUN site="$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && ln -s stowplan/executor "$site/executor"

WORKDIR /
ENV PYTHONUNBUFFERED=1
