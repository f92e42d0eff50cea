"""The entry points: PROVIDER_OVERRIDE_S3=durable chooses the provider, S3_DURABLE_DIR names its folder."""

import os

from localstack.runtime import hooks
from localstack.runtime.exceptions import LocalstackExit
from localstack.services.plugins import SERVICE_PLUGINS, Service, aws_provider


@aws_provider(api="s3", name="durable")
def durable_s3() -> Service:
    """Make the provider; imported here because LocalStack loads every plugin's module."""
    from leaseway_durable_s3.provider import create_service

    return create_service()


@hooks.on_infra_start(priority=1)
def load_durable_s3() -> None:
    """Load at the start, not at the first request, so that what is wrong stops the start with a sentence.

    (LocalStack itself starts with any provider name and answers every S3 request with InternalFailure; and with a
    misspelt variable it would keep objects where the next start forgets them.) CORS preflights and bucket host names
    work from the first request on, too: their handlers come with the provider.
    """
    chosen = SERVICE_PLUGINS.get_active_provider("s3")
    known = SERVICE_PLUGINS.api_provider_specs["s3"]
    if chosen not in known:
        raise LocalstackExit(
            f"PROVIDER_OVERRIDE_S3={chosen}: there is no such provider; there are {', '.join(sorted(known))}.", code=1
        )
    if chosen != "durable":
        if os.environ.get("S3_DURABLE_DIR"):
            raise LocalstackExit("S3_DURABLE_DIR is set: set PROVIDER_OVERRIDE_S3=durable too, or unset it.", code=1)
        return
    try:
        SERVICE_PLUGINS.require("s3")
    except Exception as e:
        raise LocalstackExit(str(e), code=1) from e
