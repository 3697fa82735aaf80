"""What orders have to cost."""

from stock import Line, price_of


def test_every_piece_costs():
    assert price_of([Line("pen", 2.0, 3), Line("ink", 5.0)]) == 11.0


def test_a_tenth_is_off_from_100_on():
    assert price_of([Line("desk", 100.0)]) == 90.0


def test_nothing_is_off_below_100():
    assert price_of([Line("chair", 99.0)]) == 99.0
