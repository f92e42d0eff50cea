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

from localstack.runtime import hooks

LOG = logging.getLogger(__name__)
CAP = int(os.environ.get("LAMBDA_PROCESS_ESM_CONCURRENCY") or 5)


@hooks.on_infra_start()
def correct_sqs_event_sources() -> None:
    """Patch the poller. Pipes use it too, without an EsmWorker: they keep LocalStack's way but for the bodies."""
    from localstack.services.lambda_.event_source_mapping.esm_worker import EsmWorker
    from localstack.services.lambda_.event_source_mapping.pollers.sqs_poller import SqsPoller

    make_worker = EsmWorker.__init__
    poll = SqsPoller.poll_events
    handle = SqsPoller.handle_messages
    add_metadata = SqsPoller.add_source_metadata
    batch = threading.local()

    def make_worker_with_slots(self: Any, esm_config: Any, poller: Any, *args: Any, **kwargs: Any) -> None:
        make_worker(self, esm_config, poller, *args, **kwargs)
        if isinstance(poller, SqsPoller):
            wanted = (esm_config.get("ScalingConfig") or {}).get("MaximumConcurrency") or CAP
            poller.slots = threading.BoundedSemaphore(min(wanted, CAP))
            poller.stopping = self._shutdown_event

    def poll_when_a_slot_is_free(self: Any) -> None:
        # Received means hidden from everyone else: nothing is fetched that can't be worked on at once. Only this
        # thread takes slots, so the free one is still free when the messages are there.
        if slots := getattr(self, "slots", None):
            slots.acquire()
            slots.release()
            if self.stopping.is_set():  # disabled or replaced while it waited
                return
        poll(self)

    def handle_beside_others(self: Any, messages: list[dict[str, Any]]) -> None:
        if not (slots := getattr(self, "slots", None)):
            handle_exactly(self, messages)
            return

        def run() -> None:
            try:
                handle_exactly(self, messages)
            except Exception as e:  # noqa: BLE001 - as the poller does: the messages come back by themselves
                LOG.warning("A batch of %s failed: %s", self.source_arn, e)
            finally:
                slots.release()

        slots.acquire()
        threading.Thread(target=run, name="event-source-batch", daemon=True).start()

    def handle_exactly(self: Any, messages: list[dict[str, Any]]) -> None:
        batch.bodies = {message["MessageId"]: message["Body"] for message in messages}
        handle(self, messages)

    def add_metadata_and_bodies(self: Any, events: list[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        for event in events:
            event["body"] = batch.bodies[event["messageId"]]
        return add_metadata(self, events, *args, **kwargs)

    EsmWorker.__init__ = make_worker_with_slots
    SqsPoller.poll_events = poll_when_a_slot_is_free
    SqsPoller.handle_messages = handle_beside_others
    SqsPoller.add_source_metadata = add_metadata_and_bodies
