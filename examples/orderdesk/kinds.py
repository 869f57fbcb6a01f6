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
            "How many orders from {month} are {status}?",
            "Count the {status} orders of {month}.",
        ),
        (
            "number of {status} orders in {month}",
            "order count, status {status}, month {month}",
            "how many orders of month {month} have status {status}",
        ),
    ),
    Kind(
        "orders_of_city",
        "select count(*) from orders natural join customers"
        " where city = '{city}' and status = '{status}'",
        ("city", "status"),
        (
            "How many {status} orders do people from {city} have?",
            "Count the {status} orders of {city}.",
        ),
        (
            "number of {status} orders by customers in {city}",
            "order count, status {status}, customer city {city}",
            "how many orders of customers in {city} have status {status}",
        ),
    ),
    Kind(
        "latest_order",
        "select max(day) from orders natural join customers"
        " where city = '{city}' and status = '{status}'",
        ("city", "status"),
        (
            "When was the latest {status} order from {city}?",
            "On which day did {city} last place an order that is {status}?",
        ),
        (
            "day of the latest order with status {status} by customers in {city}",
            "last order day, status {status}, customer city {city}",
            "latest day on which customers in {city} placed a {status} order",
        ),
    ),
    Kind(
        "revenue_of_month",
        "select sum(units * price) from orders natural join items natural join products"
        " where day like '{month}%'",
        ("month",),
        (
            "How much money did we make in {month}?",
            "What did all orders of {month} bring in?",
        ),
        (
            "revenue in {month}",
            "total value of the items ordered in {month}",
            "money made with all orders of month {month}",
        ),
    ),
    Kind(
        "units_of_category",
        "select sum(units) from orders natural join items natural join products"
        " where category = '{category}' and day like '{year}%'",
        ("category", "year"),
        (
            "How much {category} was sold in {year}?",
            "How many units of {category} did we sell in {year}?",
        ),
        (
            "units sold of category {category} in {year}",
            "total units, category {category}, year {year}",
            "how much of category {category} was ordered in {year}",
        ),
    ),
    Kind(
        "dearest_products",
        "select title from products where category = '{category}' order by price desc limit {n}",
        ("category", "n"),
        (
            "What are our {n} most expensive kinds of {category}, dearest first?",
            "List the {n} dearest {category} products, dearest first.",
        ),
        (
            "top {n} products of category {category} by price, most expensive first",
            "the {n} most expensive titles, category {category}",
            "dearest {n} products, category {category}, in falling order of price",
        ),
        ordered=True,
    ),
    Kind(
        "best_sellers",
        "select title from products natural join items where category = '{category}'"
        " group by title order by sum(units) desc limit {n}",
        ("category", "n"),
        (
            "Which {n} {category} products sell most, best first?",
            "Name the {n} best selling kinds of {category}, best first.",
        ),
        (
            "top {n} products of category {category} by units sold, most sold first",
            "the {n} best selling titles, category {category}",
            "{n} products that sell most, category {category}, in falling order of units",
        ),
        ordered=True,
    ),
    Kind(
        "orders_by_city",
        "select city, count(*) from orders natural join customers"
        " where status = '{status}' and day >= '{month}' group by city",
        ("status", "month"),
        (
            "For each city, how many {status} orders are there since {month}?",
            "Split the {status} orders since {month} by city.",
        ),
        (
            "number of {status} orders for each city from {month} on",
            "order count split by city, status {status}, since {month}",
            "{status} orders grouped by customer city, day from {month}",
        ),
    ),
    Kind(
        "orders_by_status",
        "select status, count(*) from orders natural join shipments"
        " where carrier = '{carrier}' and day >= '{month}' group by status",
        ("carrier", "month"),
        (
            "For each status, how many orders went by {carrier} since {month}?",
            "Split the orders sent by {carrier} since {month} by status.",
        ),
        (
            "number of orders for each status with carrier {carrier} from {month} on",
            "order count split by status, carrier {carrier}, since {month}",
            "orders that carrier {carrier} took, grouped by status, day from {month}",
        ),
    ),
    Kind(
        "units_by_city",
        "select city, sum(units) from customers natural join orders natural join items"
        " natural join products where category = '{category}' and day like '{year}%'"
        " group by city",
        ("category", "year"),
        (
            "For each city, how much {category} was sold in {year}?",
            "Split the {category} sales of {year} by city.",
        ),
        (
            "units sold for each city of category {category} in {year}",
            "total units split by city, category {category}, year {year}",
            "sales of category {category} grouped by customer city, {year}",
        ),
    ),
    Kind(
        "price_by_category",
        "select category, avg(price) from products natural join suppliers"
        " where country = '{country}' and price < {price} group by category",
        ("country", "price"),
        (
            "For each category, what do goods from {country} under {price} cost on average?",
            "Split the mean price of goods from {country} under {price} by category.",
        ),
        (
            "average price for each category, goods from {country} below {price}",
            "mean price split by category, supplier country {country}, price under {price}",
            "average cost grouped by category, supplier in {country}, price less than {price}",
        ),
    ),
    Kind(
        "above_average",
        "select title from products natural join suppliers where country = '{country}'"
        " and price > (select avg(price) from products where category = '{category}')",
        ("country", "category"),
        (
            "Which goods from {country} cost more than {category} does on average?",
            "List what comes from {country} and is dearer than the mean {category}.",
        ),
        (
            "goods from {country} that cost more than the average of category {category}",
            "titles, supplier country {country}, price over the mean of category {category}",
            "products out of {country} dearer than the average {category} price",
        ),
    ),
    Kind(
        "idle_customers",
        "select name from customers where city = '{city}' and customer_id not in"
        " (select customer_id from orders where day >= '{month}')",
        ("city", "month"),
        (
            "Who in {city} has not ordered anything since {month}?",
            "List the people from {city} with no order since {month}.",
        ),
        (
            "customers in {city} without orders from {month} on",
            "names, customer city {city}, no order since {month}",
            "people in {city} who have not ordered, day from {month}",
        ),
    ),
    Kind(
        "earliest_order",
        "select min(day) from orders natural join customers"
        " where city = '{city}' and status = '{status}'",
        ("city", "status"),
        (
            "When was the earliest {status} order from {city}?",
            "On which day did {city} first place an order that is {status}?",
        ),
        (
            "day of the earliest order with status {status} by customers in {city}",
            "first order day, status {status}, customer city {city}",
            "earliest day on which customers in {city} placed a {status} order",
        ),
        heldout_only=True,
    ),
    Kind(
        "cheapest_products",
        "select title from products where category = '{category}' order by price limit {n}",
        ("category", "n"),
        (
            "What are our {n} least expensive kinds of {category}, cheapest first?",
            "List the {n} cheapest {category} products, cheapest first.",
        ),
        (
            "bottom {n} products of category {category} by price, least expensive first",
            "the {n} least expensive titles, category {category}",
            "cheapest {n} products, category {category}, in rising order of price",
        ),
        ordered=True,
        heldout_only=True,
    ),
    Kind(
        "active_customers",
        "select name from customers where city = '{city}' and customer_id in"
        " (select customer_id from orders where day >= '{month}')",
        ("city", "month"),
        (
            "Who in {city} has ordered something since {month}?",
            "List the people from {city} with an order since {month}.",
        ),
        (
            "customers in {city} with orders from {month} on",
            "names, customer city {city}, some order since {month}",
            "people in {city} who have ordered, day from {month}",
        ),
        heldout_only=True,
    ),
)
