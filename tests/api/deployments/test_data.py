"""Requests that blend sources."""

from typing import Any

import pytest

from executor.data.sources import Data, Source, TokenType
from stowplan.errors import InputError
from tests.api.deployments.test_weights import asked


def test_the_job_reads_what_the_request_names() -> None:
    sources = [{"path": "/data/web", "weight": 3}, {"path": "/data/code.bin", "token_type": "uint32"}]
    given = {"sources": sources, "validation_share": 0.1, "evaluation_interval": 50}
    expected = Data(
        sources=(Source(path="/data/web", weight=3), Source(path="/data/code.bin", token_type=TokenType.UINT32)),
        validation_share=0.1,
        evaluation_interval=50,
    )
    assert asked(data=given).training.data == expected
    assert asked(data=given).training.sources == expected.sources
    assert not asked().training.sources


@pytest.mark.parametrize(
    ("training", "pointer"),
    [
        ({"data": {"sources": [{"path": "a"}], "evaluation_interval": 5}}, "/training/data/validation_share"),
        ({"data": {"document_mask": True}}, "/training/data/document_mask"),
        ({"data": {"eod_mask_loss": True}}, "/training/data/eod_mask_loss"),
        ({"data": {"document_mask": True}, "token_file": "b"}, "/training/data/eod_token"),
        ({"data": {"validation_share": 0.5}}, "/training/data/sources"),
        ({"data": {"sources": [{"path": "a"}]}, "token_file": "b"}, "/training/token_file"),
    ],
)
def test_faults_are_where_the_request_says_it(training: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InputError) as refused:
        asked(**training)
    assert [issue.pointer for issue in refused.value.issues] == [pointer]
