"""What would change is told field by field, with both values, in lines that stay lines."""

from typing import Any

import pytest

from chalicelib.cli.diff import lines

LONG = "All roads of the city, with their names and the year in which each of them was built"


@pytest.mark.parametrize(
    ("field", "before", "after", "told"),
    [
        ("frequency", None, "DAILY", '+ frequency: "DAILY"'),
        ("frequency", "DAILY", None, '- frequency: "DAILY"'),
        ("title.de", "Straßen", "Wege", '~ title.de: "Straßen" → "Wege"'),
        ("min_records", 5, 0, "~ min_records: 5 → 0"),
        ("csv_bom", None, True, "+ csv_bom: true"),
        ("keywords.en", ["a", "b"], ["b", "c", "d"], '~ keywords.en: - "a", + "c", "d"'),
        ("key", ["a", "b", "c"], ["a", "c", "b"], '~ key: …, "b", "c" → "c", "b"'),
        ("languages", ["DEU", "ENG"], ["ENG", "DEU"], '~ languages: "DEU", "ENG" → "ENG", "DEU"'),
        (
            "spatial",
            [],
            [f"n{n}" for n in range(12)],
            f"~ spatial: + {', '.join(f'"n{n}"' for n in range(10))}, 2 more",
        ),
        (
            "temporal",
            None,
            {"start": "2013", "end": "2014"},
            '+ temporal: start "2013", end "2014"',
        ),
        ("temporal", {"start": "2013"}, {"start": "2013", "end": "2014"}, '+ temporal.end: "2014"'),
        ("columns.id", None, {"name": "id", "type": "text", "from": "nr"}, '+ columns.id: type "text", from "nr"'),
        ("columns.id", {"name": "id", "type": "text"}, None, '- columns.id: type "text"'),
        (
            "columns.id",
            {"name": "id", "type": "text", "title": {"de": "Nr"}},
            {"name": "id", "type": "integer", "title": {"de": "Nr", "en": "No"}},
            '~ columns.id.type: "text" → "integer"\n+ columns.id.title.en: "No"',
        ),
        ("columns (their order)", ["a", "b"], ["b", "a"], '~ columns (their order): "a", "b" → "b", "a"'),
        ("description.en", None, LONG, f'+ description.en: "{LONG[:60]}"…'),
        (
            "description.en",
            f"{LONG}.",
            f"{LONG} or paved.",
            '~ description.en: …" them was built." → …" them was built or paved."',
        ),
        ("title.en", "a", "b\n\u202e\x1b[2J", '~ title.en: "a" → "b\\n\\u202e\\u001b[2J"'),
        ("title.\u202e", None, "x", '+ title.\\u202e: "x"'),
    ],
)
def test_a_field_is_told_with_what_it_was_and_what_it_becomes(field: str, before: Any, after: Any, told: str) -> None:
    assert "\n".join(lines(field, before, after)) == told
