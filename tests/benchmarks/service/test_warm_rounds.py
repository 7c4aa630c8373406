"""Warm rounds beside cold ones are measured on a few clusters."""

import pytest
import typer

from benchmarks.service import warm_rounds


def test_a_cluster_that_there_is_not_is_said() -> None:
    with pytest.raises(typer.BadParameter, match="1024; there is 64, 512, 2048, 2400, 10240"):
        warm_rounds.main(["1024"])
