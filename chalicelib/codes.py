"""The closed list of codes: what a failure or a refusal is called, the sentence that says it, and how to mend it.

No other text about a failure is ever stored, logged or returned (docs/invariants.md, 9).
"""

from dataclasses import dataclass

DETAILS = frozenset(
    {
        "step",
        "sqlstate",
        "host",
        "status",
        "relation",
        "column",
        "others",  # columns beside it, as far as twenty go
        "more",  # how many columns aren't named
        "record",
        "page",
        "seconds",
        "waiting_for",
        "since",
        "privilege",
        "records",
        "bytes",
        "minimum",
        "maximum",
        "violations",
        "rules",  # of the catalogue's profile, by their names
        "fence",
        "found",
        "attempts",
        "field",
        "rows",  # number, column and reason of bad ones: nothing that stood in them
        "contract",
        "secret",  # a variable's name, never what it holds
        "exception",  # a class name, never its text
    }
)
"""What may stand beside a code: names, numbers and classes, nothing that a user or a source wrote freely."""


@dataclass(frozen=True)
class Code:
    """One code: its sentence, what to do about it, and the HTTP status where it refuses a request."""

    sentence: str
    remedy: str
    status: int = 0


FAILURES: dict[str, Code] = {
    "attempts_exhausted": Code(
        "The worker died or failed in each of the three attempts.",
        "Look at the history for the step, mend the cause, then requeue it.",
    ),
    "deadline_exceeded": Code(
        "The job was not finished by its deadline.",
        "The details name what it waited for; once that answers again, requeue it.",
    ),
    "cancelled": Code("An operator or the owner cancelled the job.", "Publish again when it is wanted."),
    "unrecoverable": Code(
        "The job's row could not be recovered.", "This is a defect: look at the row and its history, then requeue it."
    ),
    "internal_error": Code(
        "The step failed with an error that has no code of its own.",
        "This is a defect: the function's log has the exception's class and place.",
    ),
    "source_unreachable": Code("The source's database doesn't answer.", "It is asked again with growing pauses."),
    "source_untrusted": Code(
        "The server of the source's database doesn't prove that it is the one that the address names.",
        "Its certificate has to be valid, of the address's host, and of an authority that this system knows or the"
        " address's sslrootcert names; mend it or the connection's secret, `leaseway connection check`, deploy, then"
        " requeue it.",
    ),
    "source_conflict": Code(
        "The source's database cancelled the query in favour of replication or another transaction.",
        "It is tried again; on a standby raise max_standby_streaming_delay or set hot_standby_feedback.",
    ),
    "source_timeout": Code(
        "The source's statement time-out ended the query.",
        "Raise the connection's time-out (`leaseway connection add … --statement-timeout`) or make the query cheaper.",
    ),
    "source_denied": Code(
        "The source's login may not read what the definition names.",
        "GRANT the connection's login the privilege that the details name (SELECT on a relation, USAGE on its schema);"
        " what lies beneath a view, the view's owner.",
    ),
    "source_changed": Code(
        "A relation or column that the definition names is gone or has another type, or the source's query is no SQL.",
        "Change the definition or the query, or bring the column back.",
    ),
    "source_bad_record": Code(
        "A record can't be exported as its declared type, or as a position within ±180 and ±90 degrees.",
        "Mend the record at the source: the details name its number, as the source gives its records, and the column.",
    ),
    "source_encoding": Code(
        "A column's name has a character that the encoding of the source's database lacks.",
        "Give the column that the details name another `name` in the definition; `from` has the source's.",
    ),
    "source_too_large": Code(
        "The source outlasts an invocation and is too large to be copied, by its records, bytes or the time of one.",
        "Raise LEASEWAY_COPY_RECORDS, LEASEWAY_COPY_BYTES or the worker's time-out, then requeue it; or publish less.",
    ),
    "record_too_large": Code(
        "A record is larger than a worker can hold.",
        "The details name its bytes and the maximum: publish less of it, or a link to what its largest value holds.",
    ),
    "staging_mismatch": Code(
        "What was copied or staged isn't what it was: the database's server may have crashed.", "It is done anew."
    ),
    "too_few_records": Code(
        "The source has no records, or far fewer than are published; what is published stays.",
        "If that is right, `leaseway publish DATASET --accept-drop` publishes it, this once;"
        " min_records and max_drop in the definition say what is always right.",
    ),
    "unknown_secret": Code(
        "The secret that the connection names isn't known here.",
        "Set the secret that the details name, deploy (local stack: `leaseway connection add` with it set, then"
        " `leaseway up`), then run it again.",
    ),
    "bad_address": Code(
        "The connection's address can't be read, or asks for less than sslmode=verify-full of another machine.",
        "`leaseway connection check` says what is wrong; mend the secret, deploy, then requeue it.",
    ),
    "storage_unreachable": Code("Object storage doesn't answer.", "It is asked again with growing pauses."),
    "data_service_unreachable": Code("The data service doesn't answer.", "It is asked again with growing pauses."),
    "data_service_refused": Code(
        "The data service refused the request, or gave an answer that its contract doesn't know.",
        "Look at LEASEWAY_DATA_SERVICE_URL, its token and the data service's own log, then requeue it.",
    ),
    "export_failed": Code(
        "The data service says that the export has failed.", "Look at the data service's own log, then requeue it."
    ),
    "file_mismatch": Code(
        "A file of the data service is missing, or isn't what its list says: format, size, checksum or records differ.",
        "It is tried again; if it stays so, it is the data service's defect.",
    ),
    "triple_store_unreachable": Code("The triple store doesn't answer.", "It is asked again with growing pauses."),
    "triple_store_refused": Code(
        "The triple store refused the update.", "Look at the triple store's own log; requeue it when it is mended."
    ),
    "triple_store_mismatch": Code(
        "What was read back from the triple store is not what was written.", "It is tried again with a new fence."
    ),
    "fence_regressed": Code(
        "The triple store, the data service or a refresh's target knows a newer fence than the database: it is older.",
        "After a restore run `leaseway restored`, then requeue it.",
    ),
    "storage_refused": Code(
        "Object storage refused the file.", "Look at the bucket and the worker's rights on it, then requeue it."
    ),
    "storage_mismatch": Code(
        "An uploaded file is not what was written: size or checksum differ.", "It is tried again with a new key."
    ),
    "file_not_deleted": Code(
        "Object storage still has a file that it was told to delete.",
        "Look at the bucket's locks, versions and the worker's rights on it, then requeue it.",
    ),
    "not_conformant": Code(
        "The metadata doesn't meet the tier's rules of DCAT-AP 3.0.1.",
        "`rules` names what it breaks, by class and property; change the definition.",
    ),
    "catalog_not_configured": Code(
        "The catalogue's own title, description, publisher, licence and homepage aren't known.",
        "`leaseway apply` a catalog.yaml, or set LEASEWAY_CATALOG_TITLE, _DESCRIPTION, _PUBLISHER_NAME, _PUBLISHER_IRI,"
        " _LICENCE, _HOMEPAGE and deploy.",
        409,
    ),
    "contract_failed": Code(
        "At least one contract of the refresh failed; its target is as it was, and so are those that depend on it.",
        "`leaseway refresh status JOB` (the refresh's own page) names each contract with its code;"
        " mend the cause, then refresh again.",
    ),
    "check_failed": Code(
        "The records don't meet the contract's checks; the target is as it was.",
        "The audit names each check with what was found; mend the source, or register a manifest with other bounds.",
    ),
    "dependency_failed": Code(
        "A contract that this one depends on wasn't refreshed; the target is as it was.",
        "Mend that one, then refresh again.",
    ),
    "outlasts_invocation": Code(
        "Copying or merging takes longer than one invocation of a function may.",
        "Set chunk_rows in the contract, or split it; then register the manifest and refresh again.",
    ),
    "target_unreachable": Code("The target's database doesn't answer.", "It is asked again with growing pauses."),
    "target_conflict": Code(
        "Another transaction of the target's database is in the way.", "It is tried again with growing pauses."
    ),
    "target_timeout": Code(
        "The statement time-out of the target ended the merge.",
        "Raise the connection's time-out (`leaseway connection add … --statement-timeout`), then refresh again.",
    ),
    "target_untrusted": Code(
        "The server of the target's database doesn't prove that it is the one that the address names.",
        "Its certificate has to be valid, of the address's host, and of an authority that this system knows or the"
        " address's sslrootcert names; mend it or the connection's secret, `leaseway connection check`, deploy, then"
        " refresh again.",
    ),
    "target_denied": Code(
        "The target's login may not do what the contract needs.",
        "GRANT it SELECT, INSERT, UPDATE and DELETE on the target, and CREATE on the schema leaseway there.",
    ),
    "target_changed": Code(
        "The target, or a column of it that the contract names, is gone or has another type.",
        "Bring it back, or register a manifest that fits, then refresh again.",
    ),
    "target_is_view": Code(
        "The target is a view.", "Name a table as the target, register the manifest, then refresh again."
    ),
    "target_is_source": Code(
        "The target is the contract's own source, reached by another connection; it is as it was.",
        "Name another table as the target, or as the source, register the manifest, then refresh again.",
    ),
    "target_has_key_twice": Code(
        "The target holds more than one row of a key; it is as it was.",
        "Leave one row of each key, make a unique index on the contract's key there, then refresh again.",
    ),
    "target_refused": Code(
        "The target doesn't take a record: a constraint or a trigger refuses it, or its type is too small.",
        "The details name the SQLSTATE; add a check to the contract, or mend the target.",
    ),
    "not_enabled": Code(
        "Refreshes aren't enabled.",
        "`leaseway refresh enable --rollback PACKAGE` enables them; it takes the digest of a package to go back to.",
        409,
    ),
    "invalid_rows": Code(
        "Rows can't be loaded: a value is missing, isn't of its column's type, or a key stands there twice.",
        "`rows` names the first hundred by number, column and reason, `records` counts all; mend them, send all anew.",
        422,
    ),
    "row_too_wide": Code(
        "A row is larger than the 8 kB that PostgreSQL can hold of one: too many of its columns have a value.",
        "Make two datasets of the columns, or one json column of those that are seldom asked for.",
    ),
    "unknown_column": Code(
        "The rows have a column that the definition doesn't.",
        "Take it out, or add it to the definition; a CSV begins with a line of names.",
        422,
    ),
    "missing_column": Code("The rows lack a column in which every row must have a value.", "Send it too.", 422),
    "unreadable_rows": Code(
        "The rows can't be read as what they are declared to be.",
        "`record` is the line (of a JSON array the object's number), `column` the cell or character;"
        " mend it, or declare the dialect.",
        422,
    ),
    "no_rows": Code("There are no rows.", "Send at least one; a store isn't emptied by accident.", 422),
    "upload_missing": Code(
        "Nothing was put under the upload's address.", "PUT the file there before its load, then load anew.", 422
    ),
    "upload_changed": Code(
        "What was put under the upload's address isn't as long as it was announced to be.",
        "Begin another upload with the file's bytes, and leave it alone until its load is done.",
        422,
    ),
    "store_mismatch": Code(
        "The dataset's store doesn't fit its definition, which has changed by more than new columns.",
        "Load the whole content with mode=replace, which makes the store anew, or change the definition back.",
        409,
    ),
    "store_empty": Code(
        "Nothing has been loaded into the dataset's store yet.", "`leaseway load DATASET FILE`, then publish it."
    ),
    "store_busy": Code("Somebody holds the dataset's store.", "It is tried again with growing pauses."),
    "load_timeout": Code("The rows were not written within the time of one invocation.", "Send them in smaller loads."),
    "dataset_deleted": Code("The dataset was deleted before its rows were loaded.", "There is nothing to mend."),
    "export_lost": Code(
        "The data service no longer knows the export, or its files are gone.", "Requeue it: a new export is made."
    ),
}
"""Codes that end a job."""

PROBLEMS: dict[str, Code] = {
    "bad_request": Code("The request can't be read", "", 400),
    "bad_json": Code("The body is not the JSON this address takes", "", 400),
    "bad_parameter": Code("A parameter has a value it can't take", "", 400),
    "unauthorized": Code(
        "This address needs a token", "Send `Authorization: Bearer TOKEN`; an operator makes one.", 401
    ),
    "forbidden": Code("The token's role is too small for this", "Ask an operator for a token with the role.", 403),
    "not_found": Code("There is nothing at this address", "", 404),
    "method_not_allowed": Code("This address doesn't take this method", "", 405),
    "not_acceptable": Code("This address has no such representation", "", 406),
    "conflict": Code("The state of the thing doesn't allow this", "", 409),
    "subject_busy": Code("Another job works on the same subject", "Wait until it is finished, or cancel it.", 409),
    "has_versions": Code(
        "The dataset still has versions", "Withdraw each of them first: DELETE /datasets/{id}/versions/{n}.", 409
    ),
    "idempotency_mismatch": Code(
        "Something else was asked for with this Idempotency-Key", "Take a new key for each new request.", 409
    ),
    "payload_erased": Code("The job's payload is erased, so it can't be run again", "Send it anew.", 409),
    "gone": Code("This was withdrawn", "", 410),
    "payload_too_large": Code("The body is too large", "", 413),
    "unsupported_media_type": Code("This address doesn't take this content type", "", 415),
    "invalid_definition": Code("The definition isn't valid", "", 422),
    "invalid_catalog": Code("What the catalogue is to say of itself isn't valid", "", 422),
    "no_manifest": Code("There is no manifest yet", "`leaseway manifest register FILE` registers one.", 409),
    "unknown_package": Code(
        "There is no package of that digest",
        "Name the SHA-256 of a package whose zip is kept in the deployment bucket.",
        422,
    ),
    "invalid_schedule": Code("The schedule isn't valid", "", 422),
    "unknown_source": Code(
        "There is no source of that name", "An operator registers it: `leaseway source register`.", 422
    ),
    "takes_no_loads": Code(
        "The dataset takes no loads", "Name the columns of its `key` in the definition: rows are known by it.", 409
    ),
    "unknown_upload": Code(
        "There is no such upload to be loaded",
        "It is its owner's alone, lasts 24 hours and is loaded once: POST …/loads/uploads makes another.",
        422,
    ),
    "precondition_failed": Code("The condition doesn't hold", "Read the thing again, then repeat the change.", 412),
    "internal_error": Code("Something is broken on our side", "The log has the request id.", 500),
    "unavailable": Code("The service can't answer right now", "Try again later.", 503),
}
"""Codes of refusals (RFC 9457 problem documents)."""

ALL = FAILURES | PROBLEMS


LOGIN_REFUSED = Code(
    "The database refuses the connection's login: its password, or the login itself.",
    "Check user and password in the connection's secret (and that the login exists, may LOGIN, and pg_hba.conf lets it"
    " in); set the secret, `leaseway connection check`, deploy, then requeue it.",
)

NO_DATABASE = Code(
    "The server has no database of the name that the connection's address has.",
    "Look at the address in the connection's secret; set the secret, `leaseway connection check`, deploy, then requeue"
    " it.",
)

TOLD_APART: dict[tuple[str, str], Code] = {
    ("source_denied", "28"): LOGIN_REFUSED,  # no GRANT mends that
    ("target_denied", "28"): LOGIN_REFUSED,
    ("source_denied", "25006"): Code(
        "The source's query writes, or locks rows (`for update`), and nothing is written at a source.",
        "Take that out of the query, or of the view or function that does so.",
    ),
    ("target_denied", "25006"): Code(
        "The target's database takes no writes: it is a standby, or its login or database only reads.",
        "Lead the connection's address to the primary (target_session_attrs=read-write helps), or look at"
        " default_transaction_read_only there; then refresh again.",
    ),
    ("source_changed", "3D000"): NO_DATABASE,
    ("target_changed", "3D000"): NO_DATABASE,
    ("source_changed", "55P02"): Code(
        "The source's query changes a setting (`set_config`) by which values are written, or that nobody may change.",
        "Take that out of the query, or give the function that does so a SET clause of its own, which ends with it.",
    ),
    ("source_changed", "42P01"): Code(
        "There is no relation of that name.",
        'Write it as it is there, with its schema; a name with capitals is quoted: public."Bäume". Then register the'
        " source again, or bring the relation back.",
    ),
    ("source_changed", "42703"): Code(
        "A column that the definition or the source's query names isn't there.",
        "`leaseway source check SOURCE` lists the columns that there are; change the definition or the query, or bring"
        " the column back. In a query a name with capitals is quoted.",
    ),
    ("source_changed", "42601"): Code(
        "The source's query is no SQL that PostgreSQL can read.",
        "Try it in psql: one SELECT, without a semicolon behind it; then register the source again.",
    ),
    ("source_changed", "42702"): Code(
        "Two columns of the source's query have one name.",
        "Give one of them an alias, or say whose it is (t.id), then register the source again.",
    ),
}
"""What a code means where its SQLSTATE, or the class that this begins with, says more."""


def sentence(code: str, sqlstate: object = None) -> str:
    """What the code means and what mends it, for people; a SQLSTATE may tell it closer."""
    told = (told for (of, begins), told in TOLD_APART.items() if of == code and str(sqlstate).startswith(begins))
    found = next(told, ALL[code])
    return f"{found.sentence} {found.remedy}".strip()
