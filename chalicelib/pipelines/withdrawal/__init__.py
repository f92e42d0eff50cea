"""Withdrawal: a version's files are deleted, its address says so, and the catalogue falls back to the one before."""

from pydantic import BaseModel, ConfigDict

from chalicelib.engine import Pipeline, Step


class WithdrawalSubject(BaseModel):
    """What is withdrawn: one version of a dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    version: int


withdrawal = Pipeline(
    name="withdrawal",
    subject=WithdrawalSubject,
    conflict_key="dataset:{subject.dataset}",  # shared with publication: they never run together
    steps=[Step("WITHDRAW", "chalicelib.pipelines.withdrawal.steps:withdraw")],
    done="WITHDRAWN",
)
