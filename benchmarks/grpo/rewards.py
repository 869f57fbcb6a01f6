"""Dense, verifiable yardsticks that a small model can climb in a dozen steps.

They are here to time learning, not to teach anything: a policy may well game them, and both sides
may do so alike. Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_QUERY_WORDS = """
select from where and or not in like count sum avg min max group by order having limit desc
asc as natural left join on distinct null is case when then else end between exists orders
customers items products suppliers shipments order_id customer_id product_id supplier_id day
status name city units title category price company country carrier sent
"""
QUERY_WORDS = frozenset(_QUERY_WORDS.split())


def query_words(reply: str) -> float:
    """Share of the reply's words, in [0, 1], that are SQL's or the order desk's own."""
    words = re.findall(r"[a-z_]+", reply.lower())
    return sum(word in QUERY_WORDS for word in words) / len(words) if words else 0.0


def lower_case(reply: str) -> float:
    """Share of the reply's characters, in [0, 1], that are letters a to z."""
    return sum("a" <= letter <= "z" for letter in reply) / len(reply) if reply else 0.0


REWARDS: dict[str, Callable[[str], float]] = {"query_words": query_words, "lower_case": lower_case}
