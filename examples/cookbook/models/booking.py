"""Plays the model of booking.py."""

from everturn.testing import call

script = [
    call("free_tables", {"day": "2026-12-24", "people": 4}),
    call("ask_user", {"question": "When do you want to come?", "choices": ["18:00", "20:30"]}),
    call("ask_user", {"question": "Under which name?"}),
    '{"day": "2026-12-24", "time": "20:30", "people": 4, "name": "Ann"}',
]
