"""Launchers of clusters on this machine: a real Slurm, a real SSH daemon."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.placement.slurm_cluster import slurm_cluster
from tests.ports import free_port
from tests.waiting import eventually


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Of the nodes n1 to n4, which Slurm's commands find."""
    with slurm_cluster(tmp_path_factory.mktemp("slurm") / "c") as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """A real SSH daemon on a free port; gives the options that reach it."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(sshd).exists() or shutil.which("ssh-keygen") is None:
        pytest.skip("needs an SSH daemon (Debian: openssh-server)")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True)
    (tmp_path / "authorized").write_text((tmp_path / "user.pub").read_text())
    (tmp_path / "authorized").chmod(0o600)
    Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    options = ["-o", f"HostKey={tmp_path / 'host'}", "-o", f"AuthorizedKeysFile={tmp_path / 'authorized'}"]
    options += ["-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "UsePAM=no", "-o", "PidFile=none"]
    process = subprocess.Popen(
        [sshd, "-D", "-f", "/dev/null", "-p", str(port), "-o", "ListenAddress=127.0.0.1", *options],
        stderr=subprocess.DEVNULL,
    )
    eventually(lambda: _listens(port))
    unknown = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
    yield ("-p", str(port), "-i", str(tmp_path / "user"), *unknown)
    process.terminate()
    process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
