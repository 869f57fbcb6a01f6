"""Ids to text while they arrive, never a broken character."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

_REPLACEMENT = "�"


class Detokeniser:
    """Text of a growing id sequence.

    The pieces of all `push` calls and of `flush`, joined, are `decode` of all ids. A token that
    ends inside a UTF-8 character is held back until the character is whole; special tokens have
    no text.

    A decoder may depend on what came before (a leading space, a byte run), so each piece is the
    difference of two decodings that start at the previous piece.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._context = 0
        """Where the previous piece starts."""
        self._emitted = 0
        """Up to here ids have been turned into text."""

    def push(self, ids: Sequence[int]) -> str:
        """Whole characters that `ids` complete; may be empty."""
        self._ids.extend(ids)
        text = self._difference()
        if not text or text.endswith(_REPLACEMENT):
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """What is still held back; an unfinished character becomes U+FFFD."""
        return self._advance(self._difference())

    def _difference(self) -> str:
        before = self._decode(self._ids[self._context : self._emitted])
        return self._decode(self._ids[self._context :])[len(before) :]

    def _advance(self, text: str) -> str:
        self._context, self._emitted = self._emitted, len(self._ids)
        return text

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True)
