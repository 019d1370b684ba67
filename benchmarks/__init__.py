"""How fast everturn is beside others that do the same work: `make bench`, or `python -m benchmarks --help`.

    contestants/  one file each: a worker that holds the conversation in its own way
    measures/     one file each: what is measured, and as which ratio
    long/         `python -m benchmarks.long`: thousands of turns, kills, crowds; everturn alone
    work.py       the conversation that all of them hold
    script.py     what the scripted model says in it
    rig.py        the processes: Temporal, the scripted model, workers
    peers.py      the virtual environment of the peers, from peers.txt
    histories.py  what a conversation wrote, over all of its runs; replaying.py replays it
    report.py     tables, the JSON in results/, and RESULTS.md; plots.py draws into plots/
    sandboxed/    `python -m benchmarks.sandboxed`: workflows as Temporal's sandbox loads them
    codec.py      `python -m benchmarks.codec`: encoding and decoding alone, with bounds

Everything is relative. Contestants run in turns on the same server in the same minute, and only ratios to the floor
count: the milliseconds are those of one machine in one hour.
"""
