"""The entry points: LAMBDA_RUNTIME_EXECUTOR=process chooses the executor."""

import os
from typing import Any

from localstack import config
from localstack.runtime import hooks
from localstack.runtime.exceptions import LocalstackExit
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    """Makes the executor known to LocalStack under the name `process`."""

    name = "process"

    def load(self, *args: Any, **kwargs: Any) -> type:
        """Return the executor's class; imported here because LocalStack loads every plugin's module."""
        from leaseway_process_executor.executor import ProcessExecutor

        return ProcessExecutor


@hooks.on_infra_start(priority=10)  # before anything that takes its time
def prepare_process_executor() -> None:
    """Refuse to start on settings under which functions would only fail later, and clear what a kill left behind."""
    from localstack.services.lambda_.invocation.runtime_executor import EXECUTOR_PLUGIN_MANAGER

    from leaseway_process_executor.executor import SETTINGS

    name = config.LAMBDA_RUNTIME_EXECUTOR or "docker"
    if not EXECUTOR_PLUGIN_MANAGER.exists(name):
        raise LocalstackExit(
            f"LAMBDA_RUNTIME_EXECUTOR={name}: there is no executor of this name. Set it to 'process'.", code=1
        )
    if name != ProcessExecutorPlugin.name:
        return
    for runtime, python in SETTINGS.pythons.items():
        if not os.access(python, os.X_OK):
            raise LocalstackExit(
                f"LAMBDA_PROCESS_PYTHON names {python} for {runtime}, which can't be run. "
                "Name an interpreter with awslambdaric and boto3 installed.",
                code=1,
            )
    SETTINGS.status_folder.mkdir(parents=True, exist_ok=True)
    for left_behind in [*SETTINGS.status_folder.glob("*.json"), *SETTINGS.status_folder.glob("*.log")]:
        left_behind.unlink(missing_ok=True)


@hooks.on_infra_start()
def correct_sqs_event_sources() -> None:
    """Make SQS event sources behave as on AWS, whatever executor is chosen."""
    from leaseway_process_executor.event_source import use_parallel_pollers

    use_parallel_pollers()


@hooks.on_infra_start()
def correct_gateway_address() -> None:
    """Listen on the host of GATEWAY_LISTEN alone, whatever runs the functions."""
    from leaseway_process_executor.loopback import listen_where_told

    listen_where_told()
