"""How fast everturn is beside others that do the same work: `make bench`, or `python -m benchmarks --help`.

    contestants/  one file each: a worker that holds the conversation in its own way
    measures/     one file each: what is measured, and as which ratio
    work.py       the conversation that all of them hold
    rig.py        the processes: Temporal, the scripted model, a worker for each contestant
    report.py     tables, the JSON in results/, and RESULTS.md

Everything is relative. Contestants run in turns on the same server in the same minute, and only ratios to the floor
count: the milliseconds are those of one machine in one hour.
"""
