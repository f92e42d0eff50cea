"""Relations of a source's database as CSV, JSON and XML files, in object storage or on this machine."""

from .errors import SourceError as SourceError
from .errors import StorageAway as StorageAway
from .errors import StorageMismatch as StorageMismatch
from .errors import StorageRefused as StorageRefused
from .formats import CSV as CSV
from .formats import CSV_WITH_BOM as CSV_WITH_BOM
from .formats import JSON as JSON
from .formats import XML as XML
from .formats import Column as Column
from .formats import FileSpec as FileSpec
from .formats import Format as Format
from .relation import Beat as Beat
from .relation import Exported as Exported
from .relation import File as File
from .relation import Relation as Relation
from .relation import Target as Target
from .relation import export as export
from .storage import Found as Found
from .storage import LocalFile as LocalFile
from .storage import Store as Store
from .storage import Stored as Stored
from .storage import Upload as Upload
from .types import TYPES as TYPES
