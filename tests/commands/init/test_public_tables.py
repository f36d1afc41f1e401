"""Tables as people publish and export them: `trivet init` chooses the columns that a person would.

The tables and what is expected of them were written down before the rules, which were made on others.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import miniatures
from tests.commands.conftest import Call

from trivet.datasets.table import IMAGE

ITEMS = ("card", "loan", "transfer", "pin", "fee", "limit", "refund", "cash")
VERBS = ("lost", "blocked", "late", "wrong", "missing", "new", "double", "old")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name: str, head: str, rows: Sequence[Sequence[object]], *, mark: str = ",", encoding: str = "utf-8") -> str:
    lines = [head, *(mark.join(f'"{cell}"' if mark in str(cell) else str(cell) for cell in row) for row in rows)]
    Path(name).write_text("\n".join(lines) + "\n", encoding=encoding)
    return name


def sentence(i: int) -> str:
    return f"my {ITEMS[i % 8]} is {VERBS[i // 8 % 8]}, and I asked about it {i} days ago"


def banking77() -> str:
    return written("banking77.csv", "text,category", [(sentence(i), f"{ITEMS[i % 8]}_question") for i in range(64)])


def ag_news() -> str:
    rows = [(i % 4 + 1, f"{ITEMS[i % 8].title()} of {i}", f"{sentence(i)}, says Reuters") for i in range(64)]
    return written("ag_news.csv", "Class Index,Title,Description", rows)


def amazon_reviews() -> str:
    head = "reviewerID,asin,reviewerName,helpful,reviewText,overall,summary,unixReviewTime,reviewTime"
    rows = [
        (
            f"A{i % 20}X",
            f"B00{i % 12}",
            f"J. Doe {i % 20}",
            i % 3,
            sentence(i),
            i % 5 + 1,
            f"{VERBS[i % 8]} thing",
            1252800000 + 86400 * (i % 16),
            f"09 {i % 16 + 10}, 2009",
        )
        for i in range(80)
    ]
    return written("reviews.csv", head, rows)


def products() -> str:
    head = "id,gender,masterCategory,subCategory,articleType,baseColour,season,year,usage,productDisplayName"
    rows = [
        (
            1000 + i,
            ("Men", "Women")[i * 7 % 2],
            ("Apparel", "Footwear")[i % 8 // 4],
            f"Sub{i % 8 // 2}",
            f"Type{i % 8}",
            ("Blue", "Red", "Grey")[i % 3],
            ("Fall", "Summer")[i // 3 % 2],
            2010 + i % 7 % 4,
            "Casual",
            f"Turtle Men Check {VERBS[i % 7]} Shirt {i}",
        )
        for i in range(80)
    ]
    return written("styles.csv", head, rows)


def birds() -> str:
    head = "image_id,image_path,class_id,class_name,is_training_image,bbox_x,bbox_y"
    rows = []
    for i in range(40):
        path = f"images/{i // 5 + 1:03d}.Bird_{i // 5}/Bird_{i:04d}.png"
        miniatures.picture(Path(path), 5 * i)
        rows.append((i + 1, path, i // 5 + 1, f"{i // 5 + 1:03d}.Bird_{i // 5}", i % 2, f"{i}.0", f"{2 * i}.5"))
    return written("cub.csv", head, rows)


def german_tickets() -> str:
    head = "Ticket-ID;Erstellt am;Betreff;Beschreibung;Kategorie;Priorität;Bearbeiter"
    rows = [
        (
            f"T-{i}",
            f"{i % 9 + 1:02d}.03.2024",
            f"Frage zu {ITEMS[i % 8]}",
            f"Guten Tag, {sentence(i)}. Grüße",
            ("Konto", "Karte", "Überweisung", "Störung")[i % 4],
            ("hoch", "niedrig", "mittel")[i % 3],
            f"Frau M{i % 5}",
        )
        for i in range(64)
    ]
    return written("tickets.csv", head, rows, mark=";", encoding="cp1252")


def spanish_posts() -> str:
    rows = [
        (sentence(i), ("queja", "duda", "elogio", "aviso")[i % 4], f"2023-05-{i % 10 + 10}", f"usuario{i % 9}")
        for i in range(64)
    ]
    return written("mensajes.csv", "texto,etiqueta,fecha,usuario", rows)


def intents() -> str:
    rows = [
        {"id": i, "utterance": sentence(i), "intent": f"ask_{ITEMS[i % 8]}", "slots": {"item": ITEMS[i % 8]}}
        | {"lang": ("en", "de")[i // 5 % 2]}
        for i in range(64)
    ]
    Path("intents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "intents.jsonl"


def label_studio() -> str:
    head = "annotation_id,annotator,created_at,id,lead_time,sentiment,text,updated_at"
    rows = [
        (
            i + 7,
            i % 3 + 1,
            f"2024-01-{i % 8 + 10}T10:00:00.000000Z",
            i + 1,
            f"{i % 13}.25",
            ("Positive", "Negative", "Neutral")[i % 3],
            sentence(i),
            f"2024-02-{i % 8 + 10}T10:00:00.000000Z",
        )
        for i in range(64)
    ]
    return written("project-1-at-2024.csv", head, rows)


def observations() -> str:
    head = (
        "id,observed_on,user_login,place_guess,latitude,longitude,scientific_name,common_name,iconic_taxon_name,image"
    )
    rows = []
    for i in range(48):
        miniatures.picture(Path(f"photos/{i}.png"), 5 * i)
        rows.append(
            (
                9000 + i,
                f"2022-06-{i % 7 + 10}",
                f"walker{i % 6}",
                f"{VERBS[i % 5]} forest",
                f"{48 + i / 7:.3f}",
                f"{9 + i / 9:.3f}",
                f"Genus species{i // 6}",
                f"Bird {i // 6}",
                ("Aves", "Insecta")[i // 24],
                f"photos/{i}.png",
            )
        )
    return written("observations.csv", head, rows)


def spam() -> str:
    rows = [(("ham", "ham", "spam")[i % 3], sentence(i), "", "", "") for i in range(64)]
    return written("spam.csv", "v1,v2,,,", rows, encoding="latin-1")


def news() -> str:
    rows = [
        {"category": ("POLITICS", "WELLNESS", "TRAVEL", "MONEY")[i % 4], "headline": f"{ITEMS[i % 8]} news of {i}"}
        | {"authors": f"Ann {i % 6}", "link": f"https://a.org/{i}", "short_description": f"{sentence(i)}, they said"}
        | {"date": f"2018-05-{i % 9 + 10}"}
        for i in range(64)
    ]
    Path("news.json").write_text(json.dumps(rows))
    return "news.json"


def questions() -> str:
    rows = [(i % 8 // 2, i % 8, f"What is {sentence(i)}?") for i in range(64)]
    return written("trec.csv", "label-coarse,label-fine,text", rows)


def pets() -> str:
    rows = []
    for i in range(40):
        miniatures.picture(Path(f"pets/{i}.png"), 5 * i)
        rows.append((f"{i}.png", f"breed_{i // 5}", ("cat", "dog")[i // 20], 200 + i % 3, 300))
    return written("pets/list.csv", "filename,breed,species,width,height", rows)


def french_phrases() -> str:
    rows = [
        (sentence(i), ("plainte", "question", "merci", "autre")[i % 4], f"{i % 9 + 10}/06/2023", f"A. B{i % 7}")
        for i in range(64)
    ]
    return written("phrases.csv", "phrase;classe;date;auteur", rows, mark=";")


def whales() -> str:
    rows = []
    for i in range(32):
        miniatures.picture(Path(f"{i:04x}.png"), 5 * i)
        rows.append((f"{i:04x}.png", f"w_{i // 4:05x}"))
    return written("train.csv", "Image,Id", rows)


def complaints() -> str:
    head = "Date received,Product,Sub-product,Issue,Consumer complaint narrative,Company,State,ZIP code,Complaint ID"
    rows = [
        (f"03/{i % 9 + 10}/2020", f"Loan {i % 8 // 4}", f"Loan {i % 8 // 4} kind {i % 8 // 2}", f"Issue {i * 7 % 5}")
        for i in range(64)
    ]
    rows = [
        (*row, f"I write because {sentence(i)}", f"BANK {i % 3}", ("CA", "NY", "TX")[i * 5 % 3], f"9{i % 4}1", 70 + i)
        for i, row in enumerate(rows)
    ]
    return written("complaints.csv", head, rows)


def chinese() -> str:
    rows = [(i, f"我的{ITEMS[i % 8]}第{i}次没有到", ("物流", "退款", "质量", "其他")[i % 4]) for i in range(64)]
    return written("zh.csv", "编号,文本,标签", rows)


def shop() -> str:
    rows = []
    for i in range(40):
        miniatures.picture(Path(f"{i}.png"), 5 * i)
        rows.append(
            (f"train_{i}", f"{i}.png", f"{i * 7919 % 9973:08x}", f"Cool {ITEMS[i % 8]} {i}", 249114794 + i // 4)
        )
    return written("shop.csv", "posting_id,image,image_phash,title,label_group", rows)


def films() -> str:
    rows = [(f"A film where {sentence(i)}", ("positive", "negative")[i % 2]) for i in range(64)]
    return written("imdb.csv", "review,sentiment", rows)


# What makes the table -> the kind of data, the column of texts or images, and the labels that are taken for the main.
EXPECTED: dict[Callable[[], str], tuple[str, str, set[str]]] = {
    banking77: ("texts", "text", {"category"}),
    ag_news: ("texts", "Description", {"Class Index"}),
    amazon_reviews: ("texts", "reviewText", {"overall"}),
    products: ("texts", "productDisplayName", {"articleType", "subCategory"}),
    birds: ("table", "image_path", {"class_name"}),
    german_tickets: ("texts", "Beschreibung", {"Kategorie"}),
    spanish_posts: ("texts", "texto", {"etiqueta"}),
    intents: ("texts", "utterance", {"intent"}),
    label_studio: ("texts", "text", {"sentiment"}),
    observations: ("table", "image", {"scientific_name", "common_name"}),
}

# Written when the rules were done, and not looked at before.
LATER: dict[Callable[[], str], tuple[str, str, set[str]]] = {
    spam: ("texts", "v2", {"v1"}),
    news: ("texts", "short_description", {"category"}),
    questions: ("texts", "text", {"label-fine", "label-coarse"}),
    pets: ("table", "filename", {"breed"}),
    french_phrases: ("texts", "phrase", {"classe"}),
    whales: ("table", "Image", {"Id"}),
    complaints: ("texts", "Consumer complaint narrative", {"Product", "Sub-product"}),
    chinese: ("texts", "文本", {"标签"}),
    shop: ("table", "image", {"label_group"}),
    films: ("texts", "review", {"sentiment"}),
}


def chosen(path: str, run_command: Call) -> tuple[str, str, str] | str:
    """Kind, column of texts or images, and level trained on; the sentence that asks, where nothing is chosen."""
    code, _, err = run_command("init", path)
    if code:
        return err
    data: dict[str, Any] = tomllib.loads(Path("trivet.toml").read_text())["data"]
    names = Path(path).read_bytes().split(b"\n")[0].decode("latin-1").split(",")
    default = "text" if data["name"] == "texts" else next((name for name in IMAGE if name in names), "")
    column = data.get("text" if data["name"] == "texts" else "image", default)
    return data["name"], column, data.get("level", data["levels"][-1])


@pytest.mark.parametrize("make", {**EXPECTED, **LATER}, ids=lambda make: make.__name__)
def test_the_columns_are_those_that_a_person_would_choose(make: Callable[[], str], run_command: Call) -> None:
    kind, column, labels = (EXPECTED | LATER)[make]
    made = chosen(make(), run_command)
    assert made[:2] == (kind, column), made
    assert made[2] in labels, made
