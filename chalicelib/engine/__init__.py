"""The engine: durable jobs that are being worked on, recovered, or finished. It knows jobs, never datasets.

Light to import: the API needs it at every cold start. What is heavy stands behind the steps' import strings.
"""

from .cadence import Cadence as Cadence
from .engine import Engine as Engine
from .lease import Leased as Leased
from .model import Accepted as Accepted
from .model import Advance as Advance
from .model import Cancelled as Cancelled
from .model import ClockDisagrees as ClockDisagrees
from .model import Failure as Failure
from .model import Finished as Finished
from .model import Health as Health
from .model import Idempotency as Idempotency
from .model import Job as Job
from .model import LeaseLost as LeaseLost
from .model import LedgerRow as LedgerRow
from .model import Outage as Outage
from .model import Outcome as Outcome
from .model import Pause as Pause
from .model import PermanentFailure as PermanentFailure
from .model import Pipeline as Pipeline
from .model import Progress as Progress
from .model import Queues as Queues
from .model import Refusal as Refusal
from .model import Run as Run
from .model import Schedule as Schedule
from .model import Step as Step
from .model import SubjectBusy as SubjectBusy
from .model import TooLate as TooLate
from .model import TransientFailure as TransientFailure
from .model import Wait as Wait
from .model import Waiting as Waiting
from .model import Worked as Worked
