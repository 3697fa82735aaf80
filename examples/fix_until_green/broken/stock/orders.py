"""What an order costs. There are two faults in here."""

from collections.abc import Sequence
from dataclasses import dataclass

DISCOUNT_FROM = 99
DISCOUNT = 0.1


@dataclass(frozen=True)
class Line:
    """Some pieces of one article, with the price of each."""

    article: str
    price: float
    count: int = 1


def total(lines: Sequence[Line]) -> float:
    """The price of all pieces."""
    return sum(line.price for line in lines)


def price_of(lines: Sequence[Line]) -> float:
    """The total, with a tenth off where it is high enough."""
    full = total(lines)
    return full * (1 - DISCOUNT) if full >= DISCOUNT_FROM else full
