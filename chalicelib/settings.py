"""Every setting of Leaseway, read in one place from the environment and checked against each other at start.

Durations are seconds. Each name below is an environment variable in capitals with the prefix ``LEASEWAY_``;
DATABASE_URL, PUBLIC_URL and FILES_URL go without it.
"""

from functools import cache
from ipaddress import ip_address
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from chalicelib.iris import absolute_iri

VERSION = "0.1.0"

Texts = dict[
    Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")], Annotated[str, StringConstraints(min_length=1)]
]
"""A text in several languages: ISO 639 code to text."""

Queue = Literal["work", "fetch"]


class InvalidSettings(Exception):
    """The settings don't fit; the message names each variable and what it takes."""


class Settings(BaseSettings):
    """What Leaseway is told by its environment."""

    model_config = SettingsConfigDict(env_prefix="LEASEWAY_", extra="ignore", frozen=True, populate_by_name=True)

    database_url: SecretStr | None = Field(None, validation_alias=AliasChoices("DATABASE_URL", "database_url"))
    database_secret: str | None = None  # the name of a secret in Secrets Manager that holds the DSN
    public_url: str = Field("http://localhost", validation_alias=AliasChoices("PUBLIC_URL", "public_url"))
    files_url: str | None = Field(None, validation_alias=AliasChoices("FILES_URL", "files_url"))

    work_queue: str = "leaseway-work"
    fetch_queue: str = "leaseway-fetch"
    work_queue_url: str | None = None
    fetch_queue_url: str | None = None
    bucket: str = "leaseway-files"
    deploy_bucket: str = "leaseway-deploy"  # where the packages are kept
    triple_store_update_url: str | None = None
    triple_store_query_url: str | None = None
    triple_store_auth: SecretStr | None = None  # user:password
    data_service_url: str | None = None  # none: the built-in one
    data_service_token: SecretStr | None = None
    hash_key: SecretStr = SecretStr("")
    files_access_key_id: str | None = None
    files_secret_access_key: SecretStr | None = None

    # The catalogue itself (DCAT-AP 3.0.1: dcat:Catalog). Without them nothing is published.
    catalog_title: Texts | None = None
    catalog_description: Texts | None = None
    catalog_publisher_name: Texts | None = None
    catalog_publisher_iri: str | None = None
    catalog_licence: str | None = None
    catalog_homepage: str | None = None

    lease: float = Field(60, gt=0)
    heartbeat: float = Field(15, gt=0)
    store_timeout: float = Field(20, gt=0)
    data_service_timeout: float = Field(20, gt=0)
    # PostgreSQL counts them in milliseconds, and takes 0 for none.
    idle_in_transaction: float = Field(30, ge=0.001, le=86_400)
    statement_timeout: float = Field(25, ge=0.001, le=86_400)
    lock_timeout: float = Field(25, ge=0.001, le=86_400)
    retry_backoff: tuple[float, float] = (10, 40)
    outage_pauses: tuple[float, float] = (15, 300)  # the first and the longest; each is twice the one before
    wakeup_lost: float = Field(1800, gt=0)
    queue_budget: float = Field(86_400, gt=0)
    run_budget: float = Field(21_600, gt=0)
    catch_up_cap: int = Field(20, ge=1)
    retention_days: float = Field(30, ge=7)  # as long as an Idempotency-Key lasts, whose answer is the job
    recovery_seconds: float = Field(50, gt=0)
    worker_concurrency: int = Field(3, ge=2)

    # What a source that outlasts an invocation is copied into Leaseway's own database for: its own limits.
    copy_records: int = Field(20_000_000, ge=1)
    copy_bytes: int = Field(8 * 1024**3, ge=1)

    @field_validator(
        "public_url", "files_url", "catalog_homepage", "catalog_licence", "catalog_publisher_iri", "data_service_url"
    )
    @classmethod
    def _an_address(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        try:
            # An IRI stays as it is written, its last slash included; a base is what paths are put behind.
            return absolute_iri(value).rstrip("/") if str(info.field_name).endswith("_url") else absolute_iri(value)
        except ValueError as error:
            raise ValueError(f"must be an absolute http or https address ({error})") from None

    @field_validator("data_service_url")
    @classmethod
    def _a_base(cls, value: str | None) -> str | None:
        if value and ("?" in value or "#" in value):
            raise ValueError("must be a base that paths are put behind, without ? and #")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        # Invariant 13: the store answers before the database ends our transaction, and both before the lease ends.
        if not self.store_timeout < self.idle_in_transaction < self.lease:
            raise ValueError("store_timeout < idle_in_transaction < lease must hold")
        # Between two heartbeats there may be a request to it and one to object storage.
        if self.data_service_url and not self.data_service_timeout < self.lease / 2:
            raise ValueError("data_service_timeout must be shorter than half of lease")
        if self.data_service_url and self.data_service_token and not _keeps_secrets(self.data_service_url):
            raise ValueError("data_service_url must begin with https:// where a token is sent to another machine")
        if not self.heartbeat * 2 <= self.lease:
            raise ValueError("heartbeat must be at most half of lease")
        if not self.wakeup_lost > self.lease:
            raise ValueError("wakeup_lost must be longer than lease")
        return self

    @property
    def version(self) -> str:
        """The version of this package."""
        return VERSION

    @property
    def files_base(self) -> str:
        """Where presigned addresses of files begin: FILES_URL, else PUBLIC_URL."""
        return self.files_url or self.public_url

    @property
    def dsn(self) -> str:
        """The DSN of Leaseway's own database: DATABASE_URL, else the secret that ``LEASEWAY_DATABASE_SECRET`` names."""
        if self.database_url:
            return self.database_url.get_secret_value()
        if self.database_secret:
            import boto3

            return str(boto3.client("secretsmanager").get_secret_value(SecretId=self.database_secret)["SecretString"])
        raise InvalidSettings("DATABASE_URL or LEASEWAY_DATABASE_SECRET must be set: where Leaseway's own database is")

    @property
    def catalog_configured(self) -> bool:
        """Whether the catalogue's own title, description, publisher, licence and homepage are all there."""
        wanted = (
            self.catalog_title,
            self.catalog_description,
            self.catalog_publisher_name,
            self.catalog_publisher_iri,
            self.catalog_licence,
            self.catalog_homepage,
        )
        return all(wanted)


def _keeps_secrets(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return url.startswith("https:") or host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def load() -> Settings:
    """The settings of this environment, or InvalidSettings that names each wrong variable, never its value."""
    try:
        return Settings()
    except ValidationError as error:
        lines = []
        for fault in error.errors(include_input=False, include_url=False):
            name = str(fault["loc"][0]) if fault["loc"] else ""
            plain = name.upper() in {"DATABASE_URL", "PUBLIC_URL", "FILES_URL"}
            variable = name.upper() if plain or not name else f"LEASEWAY_{name.upper()}"
            lines.append(f"{variable}: {fault['msg']}" if variable else fault["msg"])
        raise InvalidSettings("\n".join(lines)) from None


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return load()
