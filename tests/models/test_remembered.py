"""What functions answered, remembered in the process and on disk."""

import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from models.remembered import DiskMemory, Remembering, remembered
from stowplan.catalogue import own_catalogue
from stowplan.child_environment import CACHE_VARIABLE, child_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    name: str
    share: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    places: frozenset[tuple[str, int]]
    value: float
    note: str | None = None


class Asked(NamedTuple):
    ask: Remembering[[Question], Answer | None]
    questions: list[Question]


def _forgetful(most: int = 8) -> Asked:
    """A function of this module, as a process that has just started has it, and what it was really asked."""
    questions: list[Question] = []

    @remembered(most)
    def ask(question: Question) -> Answer | None:
        questions.append(question)
        if question.name == "none":
            return None
        return Answer(places=frozenset({(question.name, 1), ("n", 2)}), value=question.share / 3)

    return Asked(ask, questions)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_next_process_finds_what_this_one_was_asked(folder: Path) -> None:
    first, second = _forgetful(), _forgetful()
    for name in ("a", "none", "a"):
        assert first.ask(Question(name=name)) == second.ask(Question(name=name))
    assert [question.name for question in first.questions] == ["a", "none"]
    assert second.questions == []
    assert first.ask(Question(name="a", share=0.2)) != first.ask(Question(name="a"))
    assert folder.stat().st_mode & 0o077 == 0


def test_without_a_folder_the_process_remembers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "")
    asked = _forgetful()
    for _ in range(2):
        asked.ask(Question(name="a"))
    assert len(asked.questions) == 1
    asked.ask.forget()
    asked.ask(Question(name="a"))
    assert len(asked.questions) == 2


def test_a_folder_that_cannot_be_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    asked = _forgetful()
    assert asked.ask(Question(name="a")) is not None


@pytest.mark.parametrize("text", [b"", b"{}", b'{"places": [["a", 1]], "value": "no"}', b"\xff"])
def test_what_cannot_be_read_is_asked_again(folder: Path, text: bytes) -> None:
    asked = _forgetful()
    right = asked.ask(Question(name="a"))
    (file,) = folder.glob("answers-*.sqlite")
    with sqlite3.connect(file) as database:
        database.execute("UPDATE answers SET text = ?", (text,))
    database.close()
    asked.ask.forget()
    assert asked.ask(Question(name="a")) == right
    assert len(asked.questions) == 2


def test_a_file_that_is_no_database_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "answers").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(sqlite3.Error):
        DiskMemory(tmp_path / "answers")


def test_arguments_that_do_not_say_what_they_are_stay_in_the_process(folder: Path) -> None:
    """Two objects may come to lie at one address, in two processes."""

    class Opaque:
        pass

    @remembered(8)
    def name_of(thing: object) -> str:
        return type(thing).__name__

    assert name_of(Opaque()) == "Opaque"
    (file,) = folder.glob("answers-*.sqlite")
    database = sqlite3.connect(file)
    assert database.execute("SELECT count(*) FROM answers").fetchone() == (0,)
    database.close()


def test_what_is_full_loses_the_oldest(tmp_path: Path) -> None:
    memory = DiskMemory(tmp_path / "answers", most_pages=32)
    text = os.urandom(1000)
    for k in range(400):
        memory.put(k.to_bytes(4, "big"), text)
    there = [k for k in range(400) if memory.get(k.to_bytes(4, "big")) is not None]
    assert 20 < len(there) < 200
    assert there == list(range(there[0], 400))
    memory.close()
    assert (tmp_path / "answers").stat().st_size <= 32 * 4096


def test_threads_and_processes_share_a_file(tmp_path: Path) -> None:
    memories = [DiskMemory(tmp_path / "answers") for _ in range(2)]

    def write(first: int) -> None:
        for k in range(first, first + 50):
            memories[k % 2].put(str(k).encode(), b"text")

    threads = [threading.Thread(target=write, args=(50 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(memories[0].get(str(k).encode()) == b"text" for k in range(200))
    for memory in memories:
        memory.close()


def test_another_catalogue_has_other_answers(folder: Path, tmp_path: Path) -> None:
    asked = _forgetful()
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(f"# {name}")
        with own_catalogue(tmp_path / f"{name}.toml"):
            asked.ask.forget()
            asked.ask(Question(name="x"))
    assert len(asked.questions) == 2
    assert len(list(folder.glob("answers-*.sqlite"))) == 1


def test_files_of_other_code_go_when_there_are_many(folder: Path) -> None:
    folder.mkdir()
    for k in range(7):
        old = folder / f"answers-{k}.sqlite"
        old.write_bytes(b"")
        (folder / f"{old.name}-wal").write_bytes(b"")
        os.utime(old, (k, k))
    _forgetful().ask(Question(name="a"))
    left = {path.name for path in folder.glob("answers-?.sqlite*")}
    assert left == {f"answers-{k}.sqlite{end}" for k in range(3, 7) for end in ("", "-wal")}


def test_workers_are_told_the_folder(folder: Path) -> None:
    program = f"import os; print(os.environ[{CACHE_VARIABLE!r}])"
    told = subprocess.run(
        [sys.executable, "-c", program], env=child_environment(), capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == str(folder)
