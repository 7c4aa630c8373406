"""What is wrong with Slurm's commands is named; the commands are scripts of this test."""

from pathlib import Path

import pytest

from executor.connected.slurm.client import (
    SlurmAwayError,
    SlurmClient,
    SlurmDeniedError,
    SlurmRefusedError,
    documents_of,
    site_of,
)
from executor.connected.slurm.lock import alone
from stowplan.errors import InputError


def commands(folder: Path, **scripts: str) -> SlurmClient:
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return SlurmClient(folder=folder, limit_s=5.0)


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no .*squeue here; .*--slurm-folder"):
        SlurmClient(folder=tmp_path).run(("squeue", "--json"))


def test_a_controller_that_is_away_is_told_from_a_refusal_and_missing_rights(tmp_path: Path) -> None:
    client = commands(
        tmp_path,
        squeue="echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        scontrol="echo 'Invalid job id specified for job 7' >&2; exit 1",
        sinfo="echo 'Access/permission denied for job 1' >&2; exit 1",
    )
    with pytest.raises(SlurmAwayError, match="connect failure"):
        client.run(("squeue", "--json"))
    with pytest.raises(SlurmRefusedError, match="Invalid job id"):
        client.run(("scontrol", "update", "JobId=7"))
    with pytest.raises(SlurmDeniedError, match="must be an operator"):
        client.run(("sinfo",))


def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    client = commands(tmp_path, squeue="exec sleep 60")
    with pytest.raises(SlurmAwayError, match=r"longer than 0\.2 s"):
        SlurmClient(folder=client.folder, limit_s=0.2).run(("squeue",))


def test_versions_before_23_02_are_asked_by_other_commands(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=s Nodes=n1\n")
    for version, has_json in (("slurm-wlm 22.05.8", False), ("slurm 23.02.0", True), ("slurm 24.11.1", True)):
        asked = tmp_path / "asked"
        script = f"""echo "$0 $*" >> {asked}
case "$*" in
  --version) echo '{version}';;
  'show config') echo 'ClusterName = c1'; echo 'SLURM_CONF = {tmp_path}/slurm.conf';;
  *) echo '{{"jobs": []}}';;
esac"""
        client = commands(tmp_path, scontrol=script, sinfo=script, squeue=script)
        site = site_of(client)
        assert (site.name, site.has_json) == ("c1", has_json)
        assert site.topology is not None
        documents_of(client, site)
        assert ("sinfo --json" in asked.read_text()) is not has_json
        asked.unlink()


def test_one_connection_at_a_time(tmp_path: Path) -> None:
    with alone(tmp_path / "lock"), pytest.raises(InputError, match="another process"), alone(tmp_path / "lock"):
        pass
    with alone(tmp_path / "lock"):
        pass
    with pytest.raises(InputError, match="cannot be locked"), alone(tmp_path / "none" / "lock"):
        pass
