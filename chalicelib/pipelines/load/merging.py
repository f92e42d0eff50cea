"""The statement that brings staged rows into a store; its names are the definition's, so it stands in no file."""

from collections.abc import Sequence

from psycopg import sql

from chalicelib.datasets.store import StoreColumn

WRITTEN_ALIKE = {"decimal", "double", "json"}
"""Types that call values equal which are written differently (1.0 and 1.00), or call none equal: their text counts."""

MERGE = """
with merged as (
    merge into {store} as old
    using staging.{table} as new
       on {same}
    {update}
     when not matched then
          insert ({names}) values ({values})
    {delete}
    returning merge_action() as act
)
select count(*) filter (where act = 'INSERT') as inserted
     , count(*) filter (where act = 'UPDATE') as updated
     , count(*) filter (where act = 'DELETE') as deleted
  from merged
"""


def merge_statement(
    dataset: str, columns: Sequence[StoreColumn], key: Sequence[str], table: str, *, replace: bool
) -> str:
    """Upsert by key, or replace the whole content: what is the same already isn't written again.

    Gives a row: inserted, updated, deleted.
    """
    staged = {column.name: sql.Identifier("new", f"c{place}") for place, column in enumerate(columns)}
    others = [column for column in columns if column.name not in key]
    update: sql.Composable = sql.SQL("")
    if others:
        update = sql.SQL("when matched and ({}) then update set {}").format(
            sql.SQL(" or ").join(_differ(column, staged[column.name]) for column in others),
            sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(column.name), staged[column.name]) for column in others
            ),
        )
    return (
        sql.SQL(MERGE)
        .format(
            store=sql.Identifier("store", dataset),
            table=sql.Identifier(table),
            same=sql.SQL(" and ").join(
                sql.SQL("{} = {}").format(sql.Identifier("old", name), staged[name]) for name in key
            ),
            update=update,
            names=sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
            values=sql.SQL(", ").join(staged[column.name] for column in columns),
            delete=sql.SQL("when not matched by source then delete" if replace else ""),
        )
        .as_string()
        .replace("%", "%%")
    )


def _differ(column: StoreColumn, staged: sql.Identifier) -> sql.Composed:
    form = "{}::text is distinct from {}::text" if column.type in WRITTEN_ALIKE else "{} is distinct from {}"
    return sql.SQL(form).format(sql.Identifier("old", column.name), staged)
