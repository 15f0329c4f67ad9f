"""`bpslaunch doctor`: finds what would fail or be slow on a job's hosts, before the job starts.

    bpslaunch doctor -H host1:4,host2:4
    python -m tf_byteps.doctor -H host1:4,host2:4 --json

`facts` is what a host says of itself, `links` what it measures to another one; both run in an
`agent` on each host. `examination` asks the agents, `verdicts` judges the answers, and `table`
prints them. docs/doctor.md explains each value.
"""
