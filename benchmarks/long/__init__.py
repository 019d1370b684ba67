"""Long runs of everturn alone: `python -m benchmarks.long [RUN ...]`. Twenty minutes for all of them.

marathon.py  200 and 2,000 turns: history bytes, payloads, memory, replay
kills.py     2,000 turns, and the worker killed every 100
crowd.py     500 conversations of 20 turns at once on one worker
idle.py      10,000 conversations, open and idle
"""
