"""Every Lambda entry point of Leaseway; read it like a table of contents."""

from chalice.app import Chalice, CloudWatchEvent, Rate, SQSEvent

from chalicelib import api
from chalicelib.pipelines import functions
from chalicelib.settings import settings

app = Chalice(app_name="leaseway")
api.register(app)

AT_ONCE = settings().worker_concurrency


@app.on_sqs_message(queue=settings().work_queue, batch_size=1, maximum_concurrency=AT_ONCE)
def worker(event: SQSEvent) -> None:
    """Wake-ups of the jobs that stay inside: publications and exports."""
    functions.work("work", event)


@app.on_sqs_message(queue=settings().fetch_queue, batch_size=1, maximum_concurrency=AT_ONCE)
def fetcher(event: SQSEvent) -> None:
    """Wake-ups of the jobs that reach the internet; this function holds no secret of a source."""
    functions.work("fetch", event)


@app.schedule(Rate(1, unit=Rate.MINUTES))
def recovery(event: CloudWatchEvent) -> None:
    """Expired leases, lost wake-ups, passed deadlines, owed messages."""
    functions.recover(event)


@app.schedule(Rate(15, unit=Rate.MINUTES))
def cleanup(event: CloudWatchEvent) -> None:
    """What the ledger calls garbage; what is older than the retention."""
    functions.clean_up(event)


@app.schedule(Rate(1, unit=Rate.MINUTES))
def catch_up(event: CloudWatchEvent) -> None:
    """Schedules that are due, as many as the cap leaves room for."""
    functions.catch_up(event)
