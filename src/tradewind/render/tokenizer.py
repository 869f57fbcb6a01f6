"""A model's tokenizer as it is used here: whole texts, never padded or cut.

`tokenizer.json` keeps the padding and the length limit of whoever saved it last; with these a
document would silently lose its end, or be trained with padding.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from tradewind.types import UserError

FILE = "tokenizer.json"


def open_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder; raises `UserError` if it has none."""
    file = folder / FILE
    if not file.is_file():
        raise UserError(
            f"the model folder has no {FILE}",
            value=str(folder),
            fix="save the fast tokenizer with the model (save_pretrained does)",
        )
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
