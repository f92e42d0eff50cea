"""What the proof's mutants say to who runs them by hand."""

import sys

import pytest

from tests.proof import mutate


def test_a_name_that_no_mutant_has_is_refused_with_those_near_it(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["mutate", "--only", "extend_lease", "claim_jobs"])

    with pytest.raises(SystemExit) as refused:
        mutate.main()

    assert refused.value.code == 2
    assert "no mutant is of claim_jobs (near it: claim_job, claim_next_job" in capsys.readouterr().err
