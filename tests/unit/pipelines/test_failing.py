"""What a source's trouble becomes: some of it passes by itself and is waited for, the rest is the job's failure."""

import pytest

from chalicelib.engine import Outage, PermanentFailure
from chalicelib.exports.errors import CODES, SourceError
from chalicelib.pipelines.export.resumable import PASSING
from chalicelib.pipelines.export.steps import failing

PASSES = {"source_unreachable", "source_conflict"}


@pytest.mark.parametrize("code", sorted({*CODES.values(), "source_untrusted", "store_empty", *PASSING}))
def test_a_source_s_trouble_is_waited_for_where_it_passes_by_itself_and_nowhere_else(code):
    with pytest.raises(Outage if code in PASSES else PermanentFailure) as raised, failing():
        raise SourceError(code, "40001")
    assert (raised.value.code, raised.value.details) == (code, {"sqlstate": "40001"})
