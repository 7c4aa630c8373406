"""GPU types of documents: what each name stands for, asked once."""

from dataclasses import replace

from models.cluster_state.base import SourceDocument, StateOptions
from topology.cluster import GpuType
from topology.gpu_catalogue import find_product, gpu_type_of, known_product

# Peaks by precision are many; a cluster's GPU type has one.
_PRECISION = "bf16"


class KnownGpus:
    """Facts of GPU types by the name that documents use: what the options say, else the catalogue.

    used: those that were asked for, in that order.
    """

    def __init__(self, options: StateOptions) -> None:
        self._default = options.gpu_type
        self._given = {kind.name: kind for kind in options.gpu_types}
        self._products = options.gpu_products
        self.used: dict[str, GpuType] = {}

    def is_said(self, name: str) -> bool:
        """Whether somebody said what GPUs of this name are."""
        return name in self._given or name in self._products

    def name(self, said: str | None, document: SourceDocument, pointer: str) -> str:
        """Name of the type that a document says at a pointer; None for a GPU without a type.

        Raises
        ------
        FileFormatError
            When nobody knows it; says what would help.
        """
        name = said or self._default
        if name is None:
            detail = "has GPUs without a type; say which GPU they are (--gpu-type, in a request gpu_type)"
            raise document.fault(detail, pointer=pointer)
        if name not in self.used:
            self.used[name] = self._facts(name, document, pointer)
        return name

    def _facts(self, name: str, document: SourceDocument, pointer: str) -> GpuType:
        if name in self._given:
            return self._given[name]
        if name in self._products:
            # Somebody says what it is: then that is to be known.
            return replace(gpu_type_of(find_product(self._products[name]), _PRECISION), name=name)
        product = known_product(name)
        if product is None:
            detail = (
                f"names the GPU {name!r}, which the catalogue does not know; say which product it is (--gpu-type "
                f"{name}=h100, in a request gpu_products), or give its facts (--gpu-types FILE, --catalogue FILE, in a "
                "request gpu_types)"
            )
            raise document.fault(detail, pointer=pointer)
        return replace(gpu_type_of(product, _PRECISION), name=name)
