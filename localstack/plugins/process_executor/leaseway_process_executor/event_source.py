"""SQS event sources as on AWS: several batches at a time, and the exact bodies.

LocalStack 4.14.0 stores ScalingConfig.MaximumConcurrency but handles one batch after the other, and parses and
re-serialises JSON bodies for its filters, which breaks hashes and md5OfBody.

LAMBDA_PROCESS_ESM_CONCURRENCY   most batches of one mapping at a time on this machine (default 5, as AWS starts with);
                                 a mapping's own MaximumConcurrency counts when it is lower
"""

import logging
import os
import threading
from typing import Any

from localstack.services.lambda_.event_source_mapping import esm_worker_factory
from localstack.services.lambda_.event_source_mapping.esm_worker import EsmWorker
from localstack.services.lambda_.event_source_mapping.pollers.sqs_poller import SqsPoller

LOG = logging.getLogger(__name__)
CAP = int(os.environ.get("LAMBDA_PROCESS_ESM_CONCURRENCY") or 5)

type Message = dict[str, Any]


class ParallelSqsPoller(SqsPoller):
    """Polls in one thread, as LocalStack's does, and hands each batch to a thread of its own while a slot is free."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._slots = threading.BoundedSemaphore(CAP)
        self._stopping = threading.Event()
        self._batch = threading.local()

    def follow(self, worker: EsmWorker) -> None:
        """Take over what the mapping says about concurrency, and when it stops."""
        scaling: dict[str, int] = worker.esm_config.get("ScalingConfig") or {}  # type: ignore[assignment]
        self._slots = threading.BoundedSemaphore(min(scaling.get("MaximumConcurrency") or CAP, CAP))
        self._stopping = worker._shutdown_event

    def poll_events(self) -> None:
        """Fetch once a slot is free: a message that is fetched is hidden from everyone else."""
        with self._slots:  # given back at once: only this thread takes slots, so this one stays free
            if self._stopping.is_set():  # disabled or replaced while it waited
                return
        super().poll_events()

    def handle_messages(self, messages: list[Message]) -> None:
        """Handle one batch beside the others."""
        self._slots.acquire()
        threading.Thread(target=self._handle, args=(messages,), name="event-source-batch", daemon=True).start()

    def _handle(self, messages: list[Message]) -> None:
        self._batch.bodies = {message["MessageId"]: message["Body"] for message in messages}
        try:
            super().handle_messages(messages)
        except Exception as e:  # noqa: BLE001 - as poll_events does; the messages come back by themselves
            LOG.warning("A batch from %s failed: %s", self.source_arn, e)
        finally:
            self._slots.release()

    def add_source_metadata(self, events: list[Message], extra_metadata: Any = None) -> list[Message]:
        """Put the original bodies back; called when the filters are through."""
        for event in events:
            event["body"] = self._batch.bodies[event["messageId"]]
        complete: list[Message] = super().add_source_metadata(events, extra_metadata)
        return complete


def use_parallel_pollers() -> None:
    """Let event source mappings use this poller; EventBridge Pipes keep LocalStack's own."""
    factory: Any = esm_worker_factory
    make_worker = factory.EsmWorkerFactory.get_esm_worker

    def get_esm_worker(self: Any) -> EsmWorker:
        worker: EsmWorker = make_worker(self)
        if isinstance(worker.poller, ParallelSqsPoller):
            worker.poller.follow(worker)
        return worker

    factory.SqsPoller = ParallelSqsPoller
    factory.EsmWorkerFactory.get_esm_worker = get_esm_worker
