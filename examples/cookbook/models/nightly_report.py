"""Plays the model of nightly_report.py."""

from everturn.testing import call

script = [
    call("orders_of_today"),
    call("send_report", {"text": "Two orders today. Order 81 (34.90 EUR) was returned."}),
    "The report is sent.",
]
