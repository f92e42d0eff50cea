"""A refresh makes its targets as its manifest says, each in one piece, each once."""


def test_the_target_becomes_what_the_source_is(team):
    team.register()
    team.admin.execute("insert into mart.trees values (1, 'tree 1', 'kept'), (2, 'old', 'kept'), (777, 'gone', 'gone')")
    team.admin.execute("truncate mart.history")

    done = team.run()

    assert (done.state, done.status, done.version) == ("REFRESHED", "succeeded", 1)
    assert team.target() == team.source()
    assert team.history() == [("DELETE", 1), ("INSERT", 98), ("UPDATE", 1)]
    audit = team.audits(done.id)["trees"]
    counts = {name: audit[name] for name in ("outcome", "read", "inserted", "updated", "deleted", "rejected")}
    assert counts == {"outcome": "refreshed", "read": 100, "inserted": 98, "updated": 1, "deleted": 1, "rejected": 0}
    assert all(check["passed"] for check in audit["checks"])
    assert team.admin.execute("select note from mart.trees where id < 3").fetchall() == [("kept",), ("kept",)]
    assert team.staging() == []
