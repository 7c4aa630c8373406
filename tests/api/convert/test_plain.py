"""The fast way to read: it gives what the documents give, and takes nothing that they refuse."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from api.convert.hashing import snapshot_id
from api.convert.plain import plain_request, plain_snapshot
from api.convert.reading import read_document
from api.convert.snapshot import snapshot_from_document
from api.schemas.compiled import NotPlainError, compiled
from api.schemas.model import TransformerDoc
from api.schemas.request import PLAN_BODY
from api.schemas.snapshot import SnapshotDoc
from stowplan.errors import InputError, StowplanError

_PROFILE = {
    "parameters": dict.fromkeys(("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n"), 0.125) | {"gamma": 1},
    "max_local_batch": 64,
    "gpus_per_replica": 2,
}
_JOBS = [
    {
        "id": "waits",
        "performance": {"kind": "goodput_table", "entries": [{"gpu_type": "a", "num_gpus": 1, "value": 2}]},
    },
    {
        "id": "läuft",
        "min_gpus": 2,
        "adaptivity": "rigid",
        "gpu_types": ["a"],
        "reservation": {"gpu_type": "a", "num_gpus": 2},
        "current": {"n2": [1, 0], "n1": [3]},
        "age_s": 1e20,
        "parallelism": {"tp": 1, "pp": 1, "dp": 1},
        "lasting": {"probabilities": [0.5, 1], "seconds": [10, 20.5]},
        "attained_s": {"a": 3},
        "performance": {
            "kind": "goodput",
            "batch": {"initial": 8, "maximum": 64},
            "gradient": {"squared_norm": 3e16, "variance": 1e-9},
            "profiles": {"b": {**_PROFILE, "single_gpu_only": True}, "a": _PROFILE},
        },
    },
    {
        "id": "1e5",
        "performance": {"kind": "throughput_table", "entries": [{"gpu_type": "a", "num_gpus": 1, "value": -0.0}]},
    },
]
_DEEP = b'{"policy":"gang","snapshot":' + b"[" * 3000 + b"]" * 3000 + b"}"
_REQUEST: dict[str, Any] = {
    "policy": "sia",
    "snapshot": {
        "cluster": {
            "gpu_types": [
                {
                    "name": name,
                    "memory_bytes": 80,
                    "peak_flops_per_s": 989e12,
                    "intra_node_bandwidth_bytes_per_s": 1e16,
                    "inter_node_bandwidth_bytes_per_s": 123456789012345678,
                }
                for name in "ab"
            ],
            "nodes": [
                {"id": "n1", "gpu_type": "a", "num_gpus": 4, "gpus_in_use": 2, "path": ["p"]},
                {"id": "n2", "gpu_type": "a", "num_gpus": 4, "gpus_in_use": [3], "path": ["p"], "state": "drained"},
            ],
            "tiers": [{"name": "pod", "bandwidth_fraction": 0.5}],
            "minipod_tier": "pod",
        },
        "jobs": _JOBS,
    },
    "parameters": {"fairness_power": -1},
    "options": {"time_limit_s": 5, "seed": 3},
}
_OTHERS: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2.5, 1.0, -0.0, 1e16, 1e-300, 2**63, 10**30, 4096, 0.1 + 0.2),
    *("", "x", "n1", "up", "a\n", "\x7f", "\u2028", "x" * 257, '"', "1e5"),
    *([], [0], [1, 1], {}, {"n1": [0]}, {"kind": "goodput"}),
)


def _text(request: Any) -> bytes:
    return json.dumps(request, ensure_ascii=False).encode()


def _by_documents(text: bytes) -> Any:
    body = read_document(PLAN_BODY, text)
    assert isinstance(body.snapshot, SnapshotDoc)
    written = body.snapshot.model_dump_json()
    rest = body.model_dump_json(exclude={"snapshot"})
    return rest, written, snapshot_id(written), repr(snapshot_from_document(body.snapshot))


def _plainly(text: bytes) -> Any:
    found = plain_request(text)
    if found is None:
        return None
    return found.body.model_dump_json(exclude={"snapshot"}), found.text, found.id, repr(found.snapshot)


def _changed(value: Any) -> Iterator[Any]:
    """The value with each of its parts left out, or another one, in turn."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for part in (*_OTHERS, *_changed(value[key])):
            other = copy.copy(value)
            other[key] = part
            yield other
        other = copy.copy(value)
        del other[key]
        yield other
    if isinstance(value, dict):
        yield {**value, "unknown": 1}


def test_a_plain_request_is_read_as_by_the_documents() -> None:
    text = _text(_REQUEST)
    assert _plainly(text) == _by_documents(text)
    assert plain_snapshot(_by_documents(text)[1].encode()) == plain_request(text).snapshot  # type: ignore[union-attr]


@pytest.mark.slow
def test_nothing_is_taken_that_documents_refuse_and_all_else_is_read_alike() -> None:
    num_taken = 0
    for request in _changed(_REQUEST):
        text = _text(request)
        found = _plainly(text)
        if found is not None:
            num_taken += 1
            assert found == _by_documents(text), text
    assert num_taken > 400


@pytest.mark.parametrize(
    "text",
    [
        _text(_REQUEST).replace(b'"min_gpus": 2', b'"min_gpus": 2, "min_gpus": 2'),
        _text(_REQUEST).replace(b'"min_gpus": 2', b'"min_gpus" : 2, "min_gpus": 2'),
        _text(_REQUEST).replace(b'"n1": [3]', b'"n1": [3], "n1": [2]'),
        _text(_REQUEST).replace(b'"policy": "sia"', b'"policy": "sia", "policy":\n"sia"'),
        _text(_REQUEST).replace(b'"seed": 3', b'"seed": 3, "seed"\t: 3'),
        _text(_REQUEST).replace(b'"min_gpus": 2', b'"min_gpus": 2, "min_gp\\u0075s": 2'),
    ],
)
def test_a_repeated_key_is_never_lost(text: bytes) -> None:
    assert plain_request(text) is None
    with pytest.raises(InputError, match="repeats a key"):
        read_document(PLAN_BODY, text)


def test_spaces_and_colons_change_nothing() -> None:
    request = copy.deepcopy(_REQUEST)
    request["snapshot"]["jobs"][0]["id"] = "a: b :c"
    text = json.dumps(request, indent=2, separators=(", ", " : ")).replace("\\u00e4", "ä").encode()
    assert _plainly(text) == _by_documents(text)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'"\xff"', _text(_REQUEST)[:-1], _text(_REQUEST) + b"x", _DEEP])
def test_what_is_no_request_is_left_to_who_says_why(text: bytes) -> None:
    assert plain_request(text) is None
    with pytest.raises((StowplanError, ValidationError)):
        read_document(PLAN_BODY, text)


def test_a_document_that_checks_fields_together_has_no_compiled_type() -> None:
    with pytest.raises(NotPlainError):
        compiled(TransformerDoc)
