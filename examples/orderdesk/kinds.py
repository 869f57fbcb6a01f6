"""The kinds of question people ask at the order desk.

A kind is one shape of query with holes. The people who ask (`questions`) and the people who wrote
the query log (`notes`) word it differently: mid-training shows the notes, RL asks the questions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as cross

from orderdesk.product import (
    CARRIERS,
    CATEGORIES,
    CITIES,
    COUNTRIES,
    STATUSES,
    YEARS,
)

MONTHS = tuple(f"{year}-{month:02}" for year in YEARS for month in range(1, 13))

_HOLES: dict[str, tuple[str, ...]] = {
    "city": CITIES,
    "category": CATEGORIES,
    "other": CATEGORIES,
    "status": STATUSES,
    "carrier": CARRIERS,
    "country": COUNTRIES,
    "year": tuple(str(year) for year in YEARS),
    "month": MONTHS,
    "n": ("2", "3", "4", "5", "6"),
    "price": ("10", "15", "20", "25", "30", "35", "40", "45"),
}


@dataclass(frozen=True)
class Kind:
    """One shape of query, with the wordings of those who ask it and of those who documented it."""

    name: str
    sql: str
    holes: tuple[str, ...]
    questions: tuple[str, ...]
    notes: tuple[str, ...]
    ordered: bool = False
    heldout_only: bool = False
    """Asked only when the agent is examined; RL never practises it."""

    def fillings(self) -> list[dict[str, str]]:
        """Every way to fill the holes."""
        values = cross(*(_HOLES[hole] for hole in self.holes))
        return [dict(zip(self.holes, row, strict=True)) for row in values]


KINDS: tuple[Kind, ...] = (
    Kind(
        "orders_in_month",
        "select count(*) from orders where status = '{status}' and day like '{month}%'",
        ("status", "month"),
        (
            "How many {status} orders are there from {month}?",
            "Count the {status} orders of {month}.",
        ),
        (
            "How many orders of {month} are {status}",
            "Number of {status} orders in {month}",
        ),
    ),
    Kind(
        "orders_of_city",
        "select count(*) from orders natural join customers where city = '{city}' and"
        " status = '{status}'",
        ("city", "status"),
        (
            "How many {status} orders came from {city}?",
            "Count the {status} orders of customers in {city}.",
        ),
        (
            "How many orders by customers in {city} are {status}",
            "Number of {status} orders by customers in {city}",
        ),
    ),
    Kind(
        "latest_order",
        "select max(day) from orders natural join customers where city = '{city}' and"
        " status = '{status}'",
        ("city", "status"),
        (
            "When was the latest {status} order from {city}?",
            "Which day had the last {status} order of customers in {city}?",
        ),
        (
            "When did customers in {city} last place a {status} order",
            "Day of the latest {status} order by customers in {city}",
        ),
    ),
    Kind(
        "revenue_of_month",
        "select sum(units * price) from orders natural join items natural join products"
        " where day like '{month}%'",
        ("month",),
        (
            "How much money did we make in {month}?",
            "What was the revenue of {month}?",
        ),
        (
            "How much money came in with the orders of {month}",
            "Revenue in {month}",
        ),
    ),
    Kind(
        "units_of_category",
        "select sum(units) from items natural join products where category ="
        " '{category}' and price < {price}",
        ("category", "price"),
        (
            "How many units of {category} under {price} did we sell?",
            "Count the units sold of {category} below {price}.",
        ),
        (
            "How many units were sold of {category} that costs less than {price}",
            "Units sold of {category}, price under {price}",
        ),
    ),
    Kind(
        "dearest_products",
        "select title from products where category = '{category}' order by price desc limit {n}",
        ("category", "n"),
        (
            "What are the {n} most expensive {category} products, dearest first?",
            "List the {n} dearest kinds of {category}, dearest first.",
        ),
        (
            "Which {n} products of {category} are most expensive",
            "Top {n} of {category} by price, dearest first",
        ),
        ordered=True,
    ),
    Kind(
        "orders_by_city",
        "select city, count(*) from orders natural join customers where status ="
        " '{status}' and day >= '{month}' group by city",
        ("status", "month"),
        (
            "For each city, how many {status} orders are there since {month}?",
            "Split the {status} orders since {month} by city.",
        ),
        (
            "How many {status} orders each city placed from {month} on",
            "Number of {status} orders by city since {month}",
        ),
    ),
    Kind(
        "orders_by_status",
        "select status, count(*) from orders natural join shipments where carrier ="
        " '{carrier}' and day >= '{month}' group by status",
        ("carrier", "month"),
        (
            "For each status, how many orders went by {carrier} since {month}?",
            "Split the orders sent by {carrier} since {month} by status.",
        ),
        (
            "How many orders each status has with carrier {carrier} from {month} on",
            "Number of orders by status, sent by {carrier} since {month}",
        ),
    ),
    Kind(
        "price_by_category",
        "select category, avg(price) from products natural join suppliers where country"
        " = '{country}' and price < {price} group by category",
        ("country", "price"),
        (
            "For each category, what do goods from {country} under {price} cost on average?",
            "Split the mean price of goods from {country} under {price} by category.",
        ),
        (
            "What each category costs on average, from {country} and less than {price}",
            "Average price by category, goods from {country} under {price}",
        ),
    ),
    Kind(
        "above_average",
        "select title from products where category = '{category}' and price > (select"
        " avg(price) from products where category = '{other}')",
        ("category", "other"),
        (
            "Which {category} products cost more than {other} does on average?",
            "List the kinds of {category} dearer than the average {other}.",
        ),
        (
            "What kinds of {category} are more expensive than the average {other}",
            "Products of {category} above the average price of {other}",
        ),
    ),
    Kind(
        "idle_customers",
        "select name from customers where city = '{city}' and customer_id not in (select"
        " customer_id from orders where day >= '{month}')",
        ("city", "month"),
        (
            "Who in {city} has not ordered anything since {month}?",
            "List the customers from {city} with no order since {month}.",
        ),
        (
            "Which customers in {city} have not ordered from {month} on",
            "Customers in {city} without orders since {month}",
        ),
    ),
    Kind(
        "sent_in_month",
        "select count(*) from shipments where carrier = '{carrier}' and sent like '{month}%'",
        ("carrier", "month"),
        (
            "How many shipments went out by {carrier} in {month}?",
            "Count the shipments by {carrier} of {month}.",
        ),
        (
            "How many shipments of {month} were sent by {carrier}",
            "Number of shipments by {carrier} in {month}",
        ),
        heldout_only=True,
    ),
    Kind(
        "orders_by_carrier",
        "select carrier, count(*) from orders natural join shipments where status ="
        " '{status}' and day >= '{month}' group by carrier",
        ("status", "month"),
        (
            "For each carrier, how many {status} orders did it take since {month}?",
            "Split the {status} orders since {month} by carrier.",
        ),
        (
            "How many {status} orders each carrier has sent from {month} on",
            "Number of {status} orders by carrier since {month}",
        ),
        heldout_only=True,
    ),
    Kind(
        "units_by_category",
        "select category, sum(units) from orders natural join items natural join products"
        " where day like '{month}%' group by category",
        ("month",),
        (
            "For each category, how many units did we sell in {month}?",
            "Split the units sold in {month} by category.",
        ),
        (
            "How many units of each category were sold in {month}",
            "Units sold by category in {month}",
        ),
        heldout_only=True,
    ),
)
