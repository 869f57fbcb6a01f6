"""Chats of the product's users: how long they waited. What they said is not kept."""

from __future__ import annotations

from sqlalchemy import insert, select

from tradewind.ledger.database import Database
from tradewind.ledger.tables import user_chats
from tradewind.types.record import Record

USER_LEFT = "the user left"


class UserChat(Record):
    """One request of a product user; its content is not kept."""

    request_id: str
    started_at: float
    """Unix seconds."""
    ttft_s: float | None
    """Seconds to the first token; None if none came."""
    seconds: float
    tokens: int
    """Generated."""
    version: int | None
    pool: str | None
    error: str | None = None
    """Why it did not end well; `USER_LEFT` if the user went away before the end."""


class UserChats(Database):
    """Written by the gateway; read by the live view and the report."""

    def record_user_chat(self, chat: UserChat) -> None:
        """Append one request of a product user."""
        with self.write() as conn:
            conn.execute(insert(user_chats).values(chat.model_dump()))

    def user_chats(self, since: float = 0.0) -> list[UserChat]:
        """Requests of product users that began at or after `since`, oldest first."""
        query = select(user_chats).where(user_chats.c.started_at >= since)
        with self.read() as conn:
            rows = conn.execute(query.order_by(user_chats.c.started_at)).mappings()
            return [UserChat(**row) for row in rows]
