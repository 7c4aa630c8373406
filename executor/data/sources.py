"""Which data a training reads, as its user says."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stowplan.errors import Issue, raise_for_errors


class TokenType(StrEnum):
    """Number format of a token file: little-endian, without a header."""

    UINT16 = "uint16"
    UINT32 = "uint32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One corpus. `path`: a file of tokens of `token_type`; None: what Megatron-LM's .bin and .idx have in common.

    `weight`: share of the samples that come from it, beside those of the other sources.
    """

    path: str
    weight: float = 1.0
    token_type: TokenType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Corpora of a training, blended, and what of them is kept for validation.

    `validation_share` of every source, at its end, is never trained on. Every `evaluation_interval` steps (0: never)
    and behind the last one the mean loss over `evaluation_batches` global batches of it is measured, always the same
    ones, or over all of it where it is less.

    Documents end where the index of a dataset of Megatron-LM says so, and behind every `eod_token` where one is given;
    files of tokens need it. `document_mask`: attention stays within documents, and positions begin again in each.
    `eod_mask_loss`: the loss leaves out what follows the last token of a document, which is the first of another one.
    """

    sources: tuple[Source, ...] = ()
    validation_share: float = 0.0
    evaluation_interval: int = 0
    evaluation_batches: int = 10
    document_mask: bool = False
    eod_token: int | None = None
    eod_mask_loss: bool = False

    def __post_init__(self) -> None:
        raise_for_errors(list(_faults(self)), "data of the training")

    @property
    def tells_documents_apart(self) -> bool:
        """Whether it matters where they begin."""
        return self.document_mask or self.eod_mask_loss


def sources_of(token_file: str | None, token_type: TokenType, data: Data) -> tuple[Source, ...]:
    """Where data come from that are given by a token file alone, or as a blend; none: they are synthetic."""
    return data.sources if token_file is None else (Source(path=token_file, token_type=token_type),)


def document_faults(sources: tuple[Source, ...], data: Data, vocabulary_size: int) -> Iterator[Issue]:
    """What is missing to tell documents apart; pointers below `data`."""
    if not data.tells_documents_apart:
        return
    asked = "document_mask" if data.document_mask else "eod_mask_loss"
    if not sources:
        yield _fault(f"/{asked}", "is true of synthetic data, which have no documents; name data that have some")
    if data.eod_token is not None:
        if data.eod_token >= vocabulary_size:
            detail = f"is {data.eod_token}; the vocabulary of the model has {vocabulary_size}"
            yield _fault("/eod_token", detail)
        return
    for source in sources:
        if source.token_type is not None:
            detail = (
                f"is missing, which {asked} needs: {source.path} is a file of tokens, which does not say where "
                "documents end; give the token that stands behind each"
            )
            yield _fault("/eod_token", detail)


def _faults(data: Data) -> Iterator[Issue]:
    for k, source in enumerate(data.sources):
        if not source.weight > 0:
            yield _fault(f"/sources/{k}/weight", f"is {source.weight}; must be above 0")
    if not 0 <= data.validation_share < 1:
        yield _fault("/validation_share", f"is {data.validation_share}; must be from 0 to below 1")
    if data.evaluation_interval < 0:
        yield _fault("/evaluation_interval", f"is {data.evaluation_interval}; at least 0")
    if data.evaluation_batches < 1:
        yield _fault("/evaluation_batches", f"is {data.evaluation_batches}; at least 1")
    if data.evaluation_interval > 0 and data.validation_share == 0:
        yield _fault("/validation_share", "is 0: there is nothing to evaluate on; give a share, or no interval")
    if data.eod_token is not None and data.eod_token < 0:
        yield _fault("/eod_token", f"is {data.eod_token}; at least 0")
    if data.eod_token is not None and not data.tells_documents_apart:
        yield _fault("/eod_token", "is given, and nothing asks where documents end: document_mask or eod_mask_loss do")
    if data.validation_share > 0 and not data.sources:
        yield _fault("/sources", "is empty: there is nothing of which a share could be kept for validation")


def _fault(pointer: str, detail: str) -> Issue:
    return Issue(code="training_data", pointer=pointer, detail=detail)
