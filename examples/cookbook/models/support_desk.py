"""Plays the model of support_desk.py."""

from everturn.testing import call

script = [
    call("look_up", {"order_id": "82"}),
    call("refund", {"order_id": "82", "cents": 450}),
    call("look_up", {"order_id": "81"}),
    call("refund", {"order_id": "81", "cents": 3490}),
    "I am sorry. The 4.50 EUR for the bulb and the 34.90 EUR for the lamp are on their way.",
]
