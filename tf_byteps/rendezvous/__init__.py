"""How the processes of a job find each other: who takes part, with which rank, and where."""
