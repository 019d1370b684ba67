"""Plays the clerk's model where there is no key:

python -m everturn.testing examples/clerk_model.py --port 8001
"""

from everturn.testing import call, say

script = [
    [say("I look the order up first."), call("look_up", {"order_id": "81"})],
    [say("A desk lamp for 34.90 EUR. I refund it in full."), call("refund", {"order_id": "81", "cents": 3490})],
    "I am sorry about the lamp. The 34.90 EUR are on their way back to you.",
]
