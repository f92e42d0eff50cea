"""Settings that don't fit together are refused with a sentence, and without a value."""

import pytest

from chalicelib.settings import InvalidSettings, load


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"URL": "exports.example.org"}, "LEASEWAY_DATA_SERVICE_URL"),
        ({"URL": "https://exports.example.org/v1?tenant=canary"}, "without ? and #"),
        ({"URL": "https://reader:canary@exports.example.org"}, "user name or password"),
        ({"URL": "http://exports.example.org", "TOKEN": "canary"}, "https://"),
        ({"URL": "http://127.0.0.1.example.org", "TOKEN": "canary"}, "https://"),
        ({"URL": "https://exports.example.org", "TIMEOUT": "30"}, "shorter than half of lease"),
    ],
)
def test_a_data_service_that_cannot_be_asked_safely_is_refused(monkeypatch, variables, said) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"LEASEWAY_DATA_SERVICE_{name}", value)
    with pytest.raises(InvalidSettings) as refused:
        load()
    assert said in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("https://exports.example.org/v1/", "canary"),
        ("http://exports.example.org", None),
        ("http://127.0.0.1:8080/v1", "canary"),
        ("http://[::1]:8080", "canary"),
        ("http://localhost", "canary"),
    ],
)
def test_a_data_service_elsewhere(monkeypatch, url, token) -> None:
    monkeypatch.setenv("LEASEWAY_DATA_SERVICE_URL", url)
    if token:
        monkeypatch.setenv("LEASEWAY_DATA_SERVICE_TOKEN", token)
    assert load().data_service_url == url.rstrip("/")
    assert "canary" not in repr(load())


@pytest.mark.parametrize("name", ["STATEMENT_TIMEOUT", "LOCK_TIMEOUT", "IDLE_IN_TRANSACTION"])
@pytest.mark.parametrize("value", ["0", "0.0004", "inf", "nan", "3000000"])
def test_a_time_out_that_would_be_none_or_is_more_than_postgresql_takes_is_refused(monkeypatch, name, value) -> None:
    monkeypatch.setenv("LEASEWAY_LEASE", "inf")
    monkeypatch.setenv("LEASEWAY_WAKEUP_LOST", "inf")
    monkeypatch.setenv("LEASEWAY_STORE_TIMEOUT", "0.0001")
    monkeypatch.setenv(f"LEASEWAY_{name}", value)
    with pytest.raises(InvalidSettings, match=f"^LEASEWAY_{name}: "):
        load()
