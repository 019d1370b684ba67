"""Plays the weather agent's model where there is no key:

python -m everturn.testing examples/hello_model.py --port 8001
"""

from everturn.testing import call

script = [
    call("get_weather", {"city": "Paris"}),
    "It is 21 degrees and sunny in Paris.",
]
