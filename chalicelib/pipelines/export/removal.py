"""What removes a file, finished or half uploaded, and the table that a file was read into."""

from chalicelib.engine import LedgerRow, Outage
from chalicelib.exports.errors import StorageAway, StorageRefused
from chalicelib.pipelines import context

from .staging import drop
from .steps import storage


def remove_object(row: LedgerRow) -> None:
    """Abort what is still being uploaded under the key, then delete the object; again: no effect."""
    store = storage()
    key = row.locator["key"]
    try:
        store.abort_uploads(key)
        store.delete(key)
    except (StorageAway, StorageRefused) as error:
        raise Outage("storage_unreachable", **error.details) from error


def drop_staging(row: LedgerRow) -> None:
    """Drop a table that a file was read into; again: no effect."""
    drop(context().db, row.locator["table"])
