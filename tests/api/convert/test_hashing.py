"""Hashes of inputs: of what they say, and of what the names in them stand for."""

from pathlib import Path

from api.convert.hashing import hash_of
from stowplan.catalogue import own_catalogue
from tests.own_catalogue import CATALOGUE


def test_a_hash_is_that_of_all_parts() -> None:
    assert hash_of("a", "b") == hash_of("a", "b")
    assert len({hash_of("a", "b"), hash_of("b", "a"), hash_of("ab")}) == 3


def test_names_stand_for_something_else_in_another_catalogue(tmp_path: Path) -> None:
    texts = {"own": CATALOGUE, "copy": CATALOGUE, "other": CATALOGUE.replace("80e9", "96e9")}
    hashes = {"": hash_of("a")}
    for name, text in texts.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        with own_catalogue(path):
            hashes[name] = hash_of("a")
    assert hashes["own"] == hashes["copy"]
    assert len(set(hashes.values())) == 3
