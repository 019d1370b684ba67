"""Plays the model of document_search.py, which first names a source that is not there."""

from everturn.testing import call

script = [
    call("search", {"words": "return lamp days"}),
    '{"text": "For 30 days.", "sources": ["faq.md"]}',
    '{"text": "For 30 days.", "sources": ["returns.md"]}',
]
