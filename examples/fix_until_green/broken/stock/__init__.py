"""Orders and what they cost."""

from stock.orders import Line, price_of

__all__ = ["Line", "price_of"]
