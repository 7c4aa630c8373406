"""Where documents begin in packed sequences, and attention that stays within them.

Every stage reads the boundaries of its micro-batches from the data, as the first and the last one read tokens; nothing
is sent along. They go through a stage beside the values, so that a micro-batch keeps its own however many are in work,
also where its layers are computed again. A layer gets them, as a second argument, when it says `takes_documents`:

    class MyBlock(nn.Module):
        takes_documents = True

        def forward(self, values: torch.Tensor, documents: Documents | None = None) -> torch.Tensor: ...
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from stowplan.arrays import Mask
from stowplan.errors import InputError

# Label of a prediction that the loss leaves out: what torch's own losses leave out.
IGNORED = -100


class Documents:
    """Documents of a micro-batch.

    Attributes
    ----------
    positions
        Of every token in its document, from 0, (batch, sequence).
    lengths
        Tokens of every document, those of the first sequence first.
    """

    def __init__(self, positions: torch.Tensor, lengths: tuple[int, ...]) -> None:
        self.positions, self.lengths = positions, lengths

    @classmethod
    def beginning_at(cls, starts: Mask) -> "Documents":
        """Of the tokens with which they begin, (batch, sequence); each sequence begins with one."""
        places = np.arange(starts.shape[1])
        positions = places - np.maximum.accumulate(np.where(starts, places, 0), axis=1)
        ends = np.append(np.flatnonzero(starts), starts.size)
        return cls(torch.from_numpy(positions), tuple(np.diff(ends).tolist()))

    def to(self, device: torch.device) -> "Documents":
        """The same, where a rank computes."""
        return Documents(self.positions.to(device), self.lengths)


# Lengths differ from one micro-batch to the next: what is compiled would be so again for each.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend_within(
    documents: Documents, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, grouped: bool
) -> torch.Tensor:
    """Causal attention in each document on its own, (batch, heads, sequence, head size).

    Documents are cut out and put together again, which takes no memory for pairs of tokens, and no time for those of
    different documents.
    """
    queries, keys, values = (
        [part.transpose(0, 1).unsqueeze(0) for part in each.transpose(1, 2).flatten(0, 1).split(documents.lengths)]
        for each in (query, key, value)
    )
    mixed = [
        functional.scaled_dot_product_attention(*document, is_causal=True, enable_gqa=grouped)
        for document in zip(queries, keys, values, strict=True)
    ]
    # In memory heads are the inner dimension, as in what comes of whole sequences.
    tokens = torch.cat([each.squeeze(0).transpose(0, 1) for each in mixed])
    return tokens.unflatten(0, (query.shape[0], -1)).transpose(1, 2)


def apply(layer: Any, values: torch.Tensor, documents: Documents | None) -> torch.Tensor:
    """Apply a layer to values, and to the documents of these where it wants to know them."""
    result: torch.Tensor = (
        layer(values, documents) if documents is not None and takes_documents(layer) else layer(values)
    )
    return result


def takes_documents(layer: Any) -> bool:
    """Whether a layer is told of documents."""
    return bool(getattr(layer, "takes_documents", False))


def refuse_unmasked(layers: Iterable[Any]) -> None:
    """Raise InputError when any of the layers that a plan spreads over the stages would not keep documents apart."""
    for layer in layers:
        if not takes_documents(layer):
            raise InputError(
                f"data.document_mask is true, and the layer {type(layer).__name__} takes no documents; one that does "
                "says takes_documents = True, and gets them behind its values (executor.trainer.documents)"
            )


def share_of(labels: torch.Tensor, num_counted: int) -> torch.Tensor:
    """Which part of the predictions that the loss of a step counts are these."""
    return (labels != IGNORED).sum() / num_counted
