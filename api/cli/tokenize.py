"""`stowplan tokenize`: from texts to the dataset of tokens that trainings read."""

import importlib
from pathlib import Path
from typing import Annotated

import typer

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from executor.data.indexed import write_indexed
from executor.extra import missing_extra
from stowplan.errors import ExtraMissingError, InputError


@command("tokenize")
def tokenize_command(
    source: Annotated[
        Path,
        typer.Argument(help="File of rows (.jsonl, .parquet, .csv, .txt, .arrow), or folder of Dataset.save_to_disk."),
    ],
    tokenizer: Annotated[Path, typer.Option(help="tokenizer.json, or the folder with it.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PREFIX", help="PREFIX.bin and PREFIX.idx.")],
    column: Annotated[str, typer.Option(help="Column with the text.")] = "text",
    end: Annotated[
        str | None,
        typer.Option(help="Token behind every document.", show_default="eos_token of tokenizer_config.json"),
    ] = None,
) -> None:
    """Write the .bin and .idx that trainings read from the texts of a dataset; needs the extra `data`."""
    if missing := missing_extra("tokenizing", ("datasets", "tokenizers"), extra="data"):
        raise ExtraMissingError(missing)
    # Takes long to load, and is not there for everybody.
    documents = importlib.import_module("executor.data.documents")
    reader = documents.TextTokenizer(tokenizer, end)
    try:
        with busy(f"tokenizing {source}"):
            count = write_indexed(
                output, reader.documents(documents.texts_of(source, column)), vocabulary_size=reader.vocabulary_size
            )
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error}") from error
    console.output().print(
        f"{output}.bin: {count:,} tokens of a vocabulary of {reader.vocabulary_size:,}", markup=False, highlight=False
    )
