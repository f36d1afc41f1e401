"""The record of `trivet audit`: the output of `--json`, and what only the page shows."""

from __future__ import annotations

from trivet.reports.shared_records import StampedRecord
from trivet.runtime.record import Number, Record
from trivet.runtime.text import percents


class NoiseRate(Record):
    """The share of wrong labels with its 95 % interval, or the reason why there is none.

    The verdict is "estimated"; "cannot-tell", between the ends of the interval, without an estimate; or
    "uninformative", without either.
    """

    verdict: str = ""
    estimate: Number | None = None
    interval: list[Number] | None = None
    reason: str = ""

    def headline(self) -> str:
        """The answer in one line."""
        if self.interval is None:
            return "No estimate: these embeddings cannot judge these labels"
        low, high = self.interval
        if self.estimate is None:
            return f"Cannot tell how many labels are wrong: {percents(low, high)}"
        ends = f"{100 * low:.1f} to {100 * high:.1f}"
        return f"{100 * self.estimate:.1f} % of the labels are wrong (95 % interval: {ends} %)"


def probability_text(probability: float | None) -> str:
    """Per cent with a decimal; nothing is called certain."""
    return ">99.9" if (probability or 0) >= 0.9995 else f"{100 * (probability or 0):.1f}"


class Suspect(Record):
    """An item with its label, the judgement (None if the verdict is "uninformative") and its duplicates.

    The proposed label is the item's own where no other is more probable. The neighbour label is the one that most of
    its neighbours have, `neighbour_count` of them; of equally frequent ones that of the nearest. It is no proposal.
    `duplicate` is "exact" or "near", `duplicate_label` "same" or "other". Of a pair that is `missing`, the proposed
    label is added, and there is no other.
    """

    id: str
    label: str
    proposed_label: str | None = None
    probability_wrong: Number | None = None
    probability_not_separable: Number | None = None
    probability_proposed: Number | None = None
    evidence: str | None = None
    neighbour_label: str | None = None
    neighbour_count: int | None = None
    neighbour_agreement: Number | None = None
    positive_margin: Number | None = None
    mode_share: Number | None = None
    duplicate: str | None = None
    duplicate_of: str | None = None
    duplicate_label: str | None = None
    outlier: bool = False
    text: str | None = None
    missing: bool = False

    def offered(self, verdict: str) -> str:
        """The label that a person is offered for the item, and may choose: the proposed one.

        Where it is unknown which labels are wrong, hardly any other label is proposed; the one that most neighbours
        have then stands in for it, and no probability supports it.
        """
        instead = self.proposed_label == self.label and verdict == "cannot-tell"
        return str(self.neighbour_label if instead else self.proposed_label)


class TagSuspect(Record):
    """A tag that is probably missing or superfluous, its probability to be a mistake, and the text of its item."""

    id: str
    tag: str
    kind: str
    probability_wrong: Number
    evidence: str
    text: str | None = None


class PairSuspect(Record):
    """A pair of a row, or one that is missing: whether the one is wrong to be listed, or the other not to be.

    The id is that of the row; of a missing pair, that of the first row of its left side, empty if there is none.
    """

    id: str
    left: str
    right: str
    kind: str
    probability_wrong: Number
    evidence: str


class KindRange(Record):
    """The range of mistakes of a kind, relative to all tags or pairs, and the number of those called so."""

    kind: str
    least: Number
    most: Number
    called: int


class DuplicateCounts(Record):
    """Numbers of items with an exact or a near duplicate, and with one of another label."""

    exact: int
    near: int
    other_label: int


class Transition(Record):
    """Shares of the labels (columns) in each true class (rows), with the ends of their intervals."""

    classes: list[str]
    matrix: list[list[Number | None]]
    low: list[list[Number | None]] = []
    high: list[list[Number | None]] = []


class NearbyItem(Record):
    """A neighbour with its thumbnail as a data URI, or its text, by cosine similarity or else by distance."""

    id: str
    label: str
    thumbnail: str | None = None
    text: str | None = None
    similarity: Number | None = None
    distance: Number | None = None


class SuspectItem(Suspect):
    """An item of the page with its thumbnail or text, the reasons one by one, and its nearest neighbours."""

    thumbnail: str | None = None
    reasons: list[str] = []
    neighbours: list[NearbyItem] = []


class AuditRecord(StampedRecord):
    """Result of an audit, the most suspect items first.

    Attributes:
        above_half: how many items are wrong (or where that is unknown, wrong or not separable) with a probability above
            1/2.
        called_wrong: how many are wrong with such a probability.
        expected_wrong: the sum of the probabilities to be wrong.
        transition: None for more than 50 classes.
        refused: why `relabel_above` or `drop_above` filled in nothing.
        headline, details: of tags and pairs, the result in a sentence, and more on it.
        tags, judged_tags: how many tags there are, and how many of them the embedding knows; None but of tags.
        pairs: how many different pairs are listed; None but of pairs.
        ranges, tag_suspects, pair_suspects: of tags and pairs; empty if none is judged.
        out, decisions, report: the files that were written.
        selected, class_names, tag_names, of_run, apply: for the page only, as `command`, `created` and `trivet` are.
    """

    noise_rate: NoiseRate | None = None
    suspects: list[Suspect] = []
    above_half: int | None = None
    called_wrong: int | None = None
    expected_wrong: Number | None = None
    duplicates: DuplicateCounts | None = None
    outliers: int | None = None
    name: str = ""
    split: str | None = None
    level: str = ""
    items: int | None = None
    classes: int | None = None
    distance: str = ""
    folds: int | None = None
    neighbours: int | None = None
    method: str = ""
    transition: Transition | None = None
    notes: list[str] = []
    refused: str = ""
    headline: str = ""
    details: list[str] = []
    tags: int | None = None
    judged_tags: int | None = None
    pairs: int | None = None
    ranges: list[KindRange] = []
    tag_suspects: list[TagSuspect] = []
    pair_suspects: list[PairSuspect] = []
    out: str = ""
    decisions: str = ""
    report: str = ""
    selected: list[SuspectItem] = []
    class_names: list[str] = []
    tag_names: list[str] = []
    of_run: bool = False
    apply: str | None = ""

    @property
    def verdict(self) -> str:
        """The verdict of the noise rate, "" if there is none."""
        return self.noise_rate.verdict if self.noise_rate else ""
