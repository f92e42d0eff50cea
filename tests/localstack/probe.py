"""The function under test; an event tells it what to do, and it notes what it did in the file RECORD."""

import json
import os
import subprocess
import time

print("loaded")


def note(**facts):
    with open(os.environ["RECORD"], "a") as record:  # noqa: PTH123 - appending a line is one write
        record.write(json.dumps(facts) + "\n")


def invoked(event, context):
    print("asked to", event.get("do"))
    note(request=context.aws_request_id, pid=os.getpid())
    match event.get("do"):
        case "exit":
            os._exit(7)
        case "raise":
            raise ValueError("no")
        case "sleep":
            time.sleep(event["seconds"])
        case "hang":
            child = subprocess.Popen(["sleep", "300"])
            print("child", child.pid)
            child.wait()
    return {"pid": os.getpid(), "env": dict(os.environ), "remaining": context.get_remaining_time_in_millis()}


def received(event, context):
    """An SQS message's body may be JSON that says how long it takes and whether it fails."""
    failures = []
    for record in event["Records"]:
        body = record["body"]
        order = json.loads(body) if body.startswith('{"seconds"') else {}
        began = time.time()
        time.sleep(order.get("seconds", 0))
        note(body=body, md5=record["md5OfBody"], began=began, ended=time.time())
        if order.get("fail"):
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}
