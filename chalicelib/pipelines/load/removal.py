"""What removes an upload that no load needs any more, or that none ever took."""

from uuid import UUID

from chalicelib.db import statements
from chalicelib.engine import LedgerRow
from chalicelib.pipelines import context
from chalicelib.pipelines.export.removal import remove_object

SQL = statements("chalicelib.pipelines.load")


def remove_upload(row: LedgerRow) -> None:
    """Delete the object, then forget the upload; again: no effect."""
    remove_object(row)
    context().db.run(SQL.delete_upload, upload=UUID(row.locator["upload"]))
