"""The page of `trivet migrate`: the answer, what changes by level, and queries that change."""

from __future__ import annotations

from pathlib import Path

from trivet.commands.migrate.maps import head_sentence, map_sentence
from trivet.commands.migrate.record import AgreementRecord, MigrateRecord
from trivet.reports.page import percent, write_page
from trivet.runtime.text import counted

TITLES = {
    "lost": "Right at the first place in the old embedding alone",
    "gained": "Right at the first place in the new embedding alone",
    "changed": "Least neighbours in common",
}
TONES = {"better": "good", "worse": "bad", "no gain": "warn", "open": "warn", "no labels": "warn"}


def write_migrate_report(record: MigrateRecord, path: Path) -> None:
    """Write the page of a change of encoder."""
    sections = [
        (title, queries)
        for change, title in TITLES.items()
        if (queries := [query for query in record.examples if query.change == change])
    ]
    context = {
        "record": record,
        "tones": TONES,
        "agreements": [agreement_sentence(agreement) for agreement in record.agreements],
        "how": how_judged(record),
        "map_answer": "" if record.linear_map is None else map_sentence(record.linear_map),
        "head_answer": "" if record.linear_map is None else head_sentence(record.linear_map),
        "sections": sections,
        "pictures": any(query.thumbnail for query in record.examples),
    }
    write_page("migrate.html", path, context)


def agreement_sentence(agreement: AgreementRecord) -> str:
    """Sentence on how far both embeddings find the same."""
    of = f" ({agreement.queries})" if agreement.queries else ""
    return (
        f"Neighbours of {counted(agreement.count, 'query')}{of}: {percent(agreement.overlap)}\u00a0% of the "
        f"{agreement.k} nearest are the same, {percent(agreement.first_changed)}\u00a0% find another item first, "
        f"{percent(agreement.none_shared)}\u00a0% have none of the {agreement.k} in common."
    )


def how_judged(record: MigrateRecord) -> str:
    """The meaning of the numbers, in a few sentences."""
    agreement = "That neighbours agree says that users will notice little; it is no judgement of either encoder."
    if not record.levels:
        return agreement
    return (
        f"{agreement} Differences are of the same queries (paired), with intervals of "
        f"{100 * (record.confidence or 0):.4g}\u00a0% over other items and, with five classes or more and less than 10 "
        "points, over other classes. Better or worse is a point or more with an interval that excludes 0, as in "
        "trivet compare; no gain rules a point out."
    )
