"""The mid-training corpus: what the people of the order desk have written down over the years.

Documents, not chats: schema notes, excerpts of the query log, how-to pages. Their wording is the
notes' wording (`kinds.py`), never a question's. The corpus covers every kind, also those that RL
never practises, always with fillings that no held-out task uses.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TypedDict

from orderdesk.kinds import KINDS, Kind
from orderdesk.questions import fillings_of

LOGS_PER_KIND = 12
PAGES_PER_KIND = 32
HELDOUT_SHARE = 0.1

_TABLE_NOTES = (
    "Table orders: order_id, customer_id, day as YYYY-MM-DD, status (open, paid, late, returned).",
    "Table customers: customer_id, name, city.",
    "Table items: order_id, product_id, units. One row for each product in an order.",
    "Table products: product_id, title, category, price, supplier_id.",
    "Table suppliers: supplier_id, company, country.",
    "Table shipments: order_id, carrier (rail, sea, air, road), sent. At most one for each order.",
    "Keys have the same name in both tables, so natural join is all that is needed.",
    "Guests order as customer_id 0, goods of the house have supplier_id 0: join nothing in vain.",
    "Days are text: day like '2024%' is a year, day like '2024-05%' is a month of it.",
)


class Document(TypedDict):
    """One line of corpus.jsonl."""

    doc_id: str
    kind: str
    split: str
    text: str


def make_corpus(database: Path, seed: int) -> list[Document]:
    """All documents, shuffled once; the first tenth of every shuffle is held out for the loss."""
    rng = random.Random(f"corpus {seed}")
    texts = [("schema", note) for note in _TABLE_NOTES]
    for kind in KINDS:
        _, fillings = fillings_of(kind, database, seed)
        texts += [("log", _log_entry(kind, fillings, rng)) for _ in range(LOGS_PER_KIND)]
        texts += [("howto", _page(kind, fillings, rng)) for _ in range(PAGES_PER_KIND)]
    rng.shuffle(texts)
    heldout = int(len(texts) * HELDOUT_SHARE)
    return [
        {
            "doc_id": f"{kind}-{number:04}",
            "kind": kind,
            "split": "heldout" if number < heldout else "train",
            "text": text,
        }
        for number, (kind, text) in enumerate(texts)
    ]


def _log_entry(kind: Kind, fillings: list[dict[str, str]], rng: random.Random) -> str:
    filling = rng.choice(fillings)
    note = rng.choice(kind.notes).format(**filling)
    return f"-- {note}\n{kind.sql.format(**filling)};"


def _page(kind: Kind, fillings: list[dict[str, str]], rng: random.Random) -> str:
    filling = rng.choice(fillings)
    note = rng.choice(kind.notes).format(**filling)
    return f"{note}:\n```sql\n{kind.sql.format(**filling)}\n```"
