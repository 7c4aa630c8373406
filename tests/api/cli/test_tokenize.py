"""`stowplan tokenize`."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from executor.data.indexed import open_indexed

pytestmark = pytest.mark.slow


def test_texts_become_a_dataset(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs tokenizers: pip install -e '.[data]' in a checkout")
    from tests.executor.data.test_documents import write_tokenizer  # needs it, too

    (tmp_path / "texts.txt").write_text("a b\nc\n")
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    command = ["tokenize", str(tmp_path / "texts.txt"), "--tokenizer", str(tokenizer), "-o", str(tmp_path / "corpus")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == ExitCode.PLANNED, done.output
    assert "5 tokens of a vocabulary of 4" in done.output
    np.testing.assert_array_equal(open_indexed(tmp_path / "corpus"), [0, 1, 3, 2, 3])


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.extra.find_spec", lambda _: None)
    done = CliRunner().invoke(app, ["tokenize", "a.txt", "--tokenizer", "b", "-o", str(tmp_path / "corpus")])
    assert done.exit_code == ExitCode.OUR_FAULT
    assert "tokenizing needs datasets and tokenizers" in done.output
