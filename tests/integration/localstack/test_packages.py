"""Which packages a deployment leaves in the bucket."""

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import MagicMock

import psycopg

from chalicelib.db import Database
from chalicelib.pipelines.refresh import registry
from localstack.deploy import CODE_BUCKET, TEMPLATE, _Deployment, rollback

NAMED = "ab" * 32
BEGAN = datetime(2026, 3, 2, tzinfo=UTC)


class Bucket:
    """The deployment bucket: ten deployments, each of code and a layer, the named package's first."""

    def __init__(self) -> None:
        names = [f"{NAMED}.zip", *(f"{number}-{of}.zip" for number in range(10) for of in ("layer", "code")), TEMPLATE]
        self.there = {name: BEGAN + timedelta(minutes=number) for number, name in enumerate(names)}

    def list_objects_v2(self, **asked: str) -> dict[str, Any]:
        assert asked == {"Bucket": CODE_BUCKET}
        return {"Contents": [{"Key": key, "LastModified": at} for key, at in self.there.items()]}

    def delete_object(self, **asked: str) -> None:
        del self.there[asked["Key"]]


def test_the_package_to_go_back_to_stays_and_so_do_the_last_three(database: Database, admin_database_dsn: str) -> None:
    assert rollback(admin_database_dsn) is None
    registry.enable(database, NAMED)
    deployment = _Deployment(MagicMock())
    deployment.s3 = bucket = Bucket()

    deployment.delete_old({"9-code.zip", "9-layer.zip", TEMPLATE, f"{rollback(admin_database_dsn)}.zip"})

    last = {f"{number}-{of}.zip" for number in (7, 8, 9) for of in ("code", "layer")}
    assert set(bucket.there) == {f"{NAMED}.zip", TEMPLATE} | last


def test_before_the_first_migration_nothing_is_named(admin_database_dsn: str) -> None:
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("alter schema refresh rename to later")
        try:
            assert rollback(admin_database_dsn) is None
        finally:
            admin.execute("alter schema later rename to refresh")
