"""Plays the model of data_analyst.py."""

from everturn.testing import call

script = [
    call("query", {"sql": "SELECT product, SUM(cents) AS cents FROM sale GROUP BY product"}),
    call("query", {"sql": "SELECT product, SUM(cents) AS cents FROM sales GROUP BY product ORDER BY cents"}),
    call("bar_chart", {"sql": "SELECT month, cents FROM sales WHERE product = 'lamp'", "title": "Lamps by month"}),
    "Lamps: 1,047.00 EUR, against 500.00 EUR for bulbs. They lead since October, when their sales doubled.",
]
