"""Documents of the product -> rows of token ids for mid-training."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from tradewind.render.tokenizer import open_tokenizer
from tradewind.types import Record, Sample, UserError

Ids = list[int]
Row = list[Ids]
"""Pieces of documents, together `sequence_length` ids."""


class Document(Record):
    """One line of a corpus file.

    Example: `{"doc_id": "d1", "kind": "schema", "split": "train", "text": "orders(id, ...)"}`.
    """

    doc_id: str = ""
    kind: str = "document"
    split: Literal["train", "heldout"] = "train"
    text: str = Field(min_length=1)


@dataclass(frozen=True)
class Corpus:
    """Token ids of every document, each ended by eos."""

    train: list[Ids]
    heldout: list[Ids]


def read_corpus(file: Path, model: Path) -> Corpus:
    """Read and tokenise a corpus with the model's own tokenizer.

    Raises:
        UserError: a file is missing, a line is not a document, or nothing is there to train on.
    """
    documents = _documents(file)
    encoded = open_tokenizer(model).encode_batch(
        [document.text for document in documents], add_special_tokens=False
    )
    end = end_id(model)
    ids: dict[str, list[Ids]] = {"train": [], "heldout": []}
    for document, encoding in zip(documents, encoded, strict=True):
        ids[document.split].append([*encoding.ids, end])
    if not any(len(document) > 1 for document in ids["train"]):
        raise UserError(
            "the corpus has no document to train on",
            value=str(file),
            fix='give at least one line with "split": "train"',
        )
    return Corpus(ids["train"], ids["heldout"])


def end_id(model: Path) -> int:
    """The eos id in the model's config; the first one if there are several.

    Raises:
        UserError: it names none.
    """
    found = json.loads((model / "config.json").read_text()).get("eos_token_id")
    first = found[0] if isinstance(found, list) and found else found
    if not isinstance(first, int):
        raise UserError(
            "the model names no token that ends a document",
            value=found,
            fix="set eos_token_id in its config.json",
        )
    return first


def rows(documents: Sequence[Ids], length: int, seed: int) -> Iterator[Row]:
    """Endless rows; each epoch has its own order, drawn from the seed."""
    return pack(chain.from_iterable(_epoch(documents, seed, n) for n in count()), length)


def pack(documents: Iterable[Ids], length: int) -> Iterator[Row]:
    """Rows of exactly `length` ids, cut wherever a row is full; the last may be shorter."""
    row: Row = []
    room = length
    for document in documents:
        rest = document
        while rest:
            piece, rest = rest[:room], rest[room:]
            row.append(piece)
            room -= len(piece)
            if room == 0:
                yield row
                row, room = [], length
    if row:
        yield row


def row_samples(row: Row, isolate: bool, name: str) -> list[Sample]:
    """A row as samples in which every id but the first is to be predicted.

    Isolated documents are samples of their own: no token sees another document, and positions
    restart. A piece of a single id predicts nothing and is left out.
    """
    pieces = row if isolate else [[token for piece in row for token in piece]]
    return [
        Sample.model_construct(
            group_id=name,
            rollout_id=f"{name}-{index}",
            ids=tuple(piece),
            mask=(False,) + (True,) * (len(piece) - 1),
            logprobs=(0.0,) * len(piece),
            versions=(-1,) + (0,) * (len(piece) - 1),
            advantage=1.0,
            weight=1.0,
            temperature=1.0,
        )
        for index, piece in enumerate(pieces)
        if len(piece) > 1
    ]


def _epoch(documents: Sequence[Ids], seed: int, number: int) -> list[Ids]:
    shuffled = list(documents)
    random.Random(f"{seed}/{number}").shuffle(shuffled)
    return shuffled


def _documents(file: Path) -> list[Document]:
    if not file.exists():
        raise UserError("the corpus file does not exist", value=str(file), fix="check its path")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        fix = "save the file as UTF-8"
        raise UserError(f"the corpus is not UTF-8 ({error})", value=str(file), fix=fix) from error
    out = []
    # not splitlines: a document may hold U+2028 and other ends of lines that JSON does not escape
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            out.append(Document.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            raise UserError(
                f"line {number} of the corpus is not a document "
                f"({'.'.join(map(str, first['loc']))}: {first['msg']})",
                value=line[:80],
                fix='write {"doc_id": ..., "kind": ..., "split": "train", "text": ...} per line',
            ) from error
    return out
