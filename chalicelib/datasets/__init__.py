"""Datasets: what a publisher says about one (the definition), and the registry of definitions, sources and versions."""

from collections.abc import Sequence
from typing import NamedTuple


class Fault(NamedTuple):
    """One thing that is wrong: the field's path (``columns[3].type``) and a sentence with the remedy."""

    field: str
    detail: str


class Invalid(Exception):
    """The definition can't be taken as it is; ``faults`` names each field and what to do."""

    def __init__(self, faults: Sequence[Fault]):
        super().__init__("; ".join(f"{field}: {detail}" for field, detail in faults))
        self.faults = tuple(faults)
