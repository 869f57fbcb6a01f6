"""What a model can be asked for: an engine refuses the rest before it starts to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tradewind.types import GenerateRequest, UserError


@dataclass(frozen=True, slots=True)
class Bounds:
    """Ids lie in [0, vocab); prompt and answer together have at most `context` of them."""

    vocab: int
    context: int

    def objection(self, request: GenerateRequest) -> str | None:
        """Why a request can never be served; None if it can."""
        ids = request.prompt_ids
        if not ids or request.max_tokens < 1:
            return "a request needs at least one prompt id and max_tokens of at least 1"
        if min(ids) < 0 or max(ids) >= self.vocab:
            return f"a prompt id is outside the vocabulary of {self.vocab}"
        if len(ids) >= self.context:
            return f"the prompt of {len(ids)} ids fills the context window of {self.context}"
        if not 0 <= request.temperature < float("inf") or not 0 < request.top_p <= 1:
            return "temperature must be at least 0 and top_p in (0, 1]"
        return None

    def check_scored(self, ids: Sequence[int], longest: int) -> None:
        """Raises UserError for a sequence that cannot be scored; `longest` is in ids."""
        if not 2 <= len(ids) <= longest:
            fix = f"score sequences of 2 to {longest} ids"
            raise UserError("a sequence cannot be scored", value=f"{len(ids)} ids", fix=fix)
        if min(ids) < 0 or max(ids) >= self.vocab:
            fix = f"the model reads ids from 0 to {self.vocab - 1}"
            raise UserError("an id is outside the vocabulary", value=[min(ids), max(ids)], fix=fix)
