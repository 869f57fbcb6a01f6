"""A refusal: why a call gets no answer, before any dialect gives it a shape."""

from __future__ import annotations

from tradewind.types import TradewindError


class Refusal(TradewindError):
    """Status, a machine-readable code and one sentence. Dialects render it, nobody sees a trace."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.code, self.message, self.param = status, code, message, param
        self.retry_after_s = retry_after_s
        """None also means that repeating the call cannot help, unless the status is 5xx."""
        self.overflow: tuple[int, int] | None = None
        """Tokens of the prompt and of the window, if that is what was wrong."""
        super().__init__(message)


def unknown_key() -> Refusal:
    """401: the key was never made."""
    return Refusal(401, "invalid_api_key", "This API key is not known here. Use the lease's key.")


def ended(what: str) -> Refusal:
    """409: the rollout is over."""
    return Refusal(409, "rollout_ended", f"This session is over: {what}.")


def bad_request(message: str, *, param: str | None = None, code: str = "invalid_value") -> Refusal:
    """400: what the agent sent cannot be served."""
    return Refusal(400, code, message, param=param)


def context_overflow(prompt: int, window: int) -> Refusal:
    """400 with the code by which agents know that they must compact their history."""
    refusal = Refusal(
        400,
        "context_length_exceeded",
        f"This model's maximum context length is {window} tokens. However, your messages resulted "
        f"in {prompt} tokens. Please reduce the length of the messages.",
        param="messages",
    )
    refusal.overflow = (prompt, window)
    return refusal


def no_pool(waiting_for: str, retry_after_s: float) -> Refusal:
    """429: nobody can serve now; try again later."""
    return Refusal(
        429, "no_pool", f"No pool can serve now: {waiting_for}.", retry_after_s=retry_after_s
    )


def broke_off(cause: str) -> Refusal:
    """503: the answer was begun and could not be finished."""
    return Refusal(503, "answer_lost", f"The answer could not be finished: {cause}.")
