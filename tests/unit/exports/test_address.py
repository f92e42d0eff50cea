"""Where a connection's address leads decides how safe it must be."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from chalicelib.exports import address
from chalicelib.exports.address import BadAddress, secured


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(address, "LIBPQS_OWN", tmp_path / "root.crt")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:p@127.0.0.1:5432/d",
        "postgresql://u@127.8.9.1/d",
        "postgresql://u@[::1]/d",
        "postgresql://u@localhost/d?sslmode=disable",
        "host=/var/run/postgresql dbname=d",
        "host=@abstract",
        "dbname=d",
        "host=localhost,127.0.0.1",
        "host=db.example.org hostaddr=127.0.0.1",
    ],
)
def test_what_stays_on_this_machine_is_left_as_it_is(dsn):
    assert secured(dsn) == dsn


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:p@db.example.org/d",
        "postgresql://u:p@db.example.org/d?sslmode=verify-full",
        "postgresql://u:p@10.0.0.7/d",
        "host=localhost,db.example.org",
        "host=127.0.0.1 hostaddr=10.0.0.7",
        "host=127.0.0.1.example.org",
        "service=warehouse",
    ],
)
def test_another_machine_is_verified(dsn):
    made = conninfo_to_dict(secured(dsn))

    assert made["sslmode"] == "verify-full"
    assert made["sslrootcert"]
    assert {k: v for k, v in made.items() if not k.startswith("ssl")} == {
        k: v for k, v in conninfo_to_dict(dsn).items() if not k.startswith("ssl")
    }


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_less_than_that_is_refused_with_a_sentence(mode, monkeypatch):
    with pytest.raises(BadAddress, match=f"sslmode={mode}"):
        secured(f"postgresql://u:canary@db.example.org/d?sslmode={mode}")
    monkeypatch.setenv("PGSSLMODE", mode)
    with pytest.raises(BadAddress):
        secured("postgresql://u:canary@db.example.org/d")


@pytest.mark.parametrize("name", ["PGHOST", "PGHOSTADDR", "PGSERVICE"])
def test_a_host_that_the_environment_names_counts(name, monkeypatch):
    monkeypatch.setenv(name, "10.0.0.7")

    assert conninfo_to_dict(secured("dbname=d"))["sslmode"] == "verify-full"


def test_the_addresss_own_authority_and_libpqs_own_place_come_first(tmp_path):
    own = secured("postgresql://u@db.example.org/d?sslrootcert=/etc/own.pem")
    assert conninfo_to_dict(own)["sslrootcert"] == "/etc/own.pem"

    address.LIBPQS_OWN.write_text("")
    assert "sslrootcert" not in conninfo_to_dict(secured("postgresql://u@db.example.org/d"))


def test_without_a_bundle_libpq_is_asked_for_the_systems(monkeypatch):
    monkeypatch.setattr(address, "_bundles", list)

    assert conninfo_to_dict(secured("host=db.example.org"))["sslrootcert"] == "system"


@pytest.mark.parametrize("dsn", ["postgresql://u:can%ary@h/d", "canary", "host=h nonsense=canary"])
def test_what_is_no_connection_string_is_refused_without_being_quoted(dsn):
    with pytest.raises(BadAddress) as refused:
        secured(dsn)

    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
