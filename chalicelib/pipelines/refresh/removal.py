"""What removes the staging tables that a refresh has left: its worker died, it was cancelled, a target was away."""

from chalicelib.datasets import registry as datasets
from chalicelib.engine import LedgerRow
from chalicelib.pipelines import context
from chalicelib.pipelines.addresses import address

from .target import drop_staging


def remove_staging(row: LedgerRow) -> None:
    """Drop the staging table in the target's database; again: no effect."""
    connection = datasets.connection(context().db, row.locator["connection"])
    assert connection is not None  # it stays as long as it has left something
    drop_staging(address(connection), row.locator["table"])
