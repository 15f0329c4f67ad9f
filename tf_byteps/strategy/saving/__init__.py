"""Files that all workers of a job write to one path.

A program of one process names one path, and so do all workers that run it. They may see one disk or
disks of their own, and any of them may write alone (`if rank == 0`). So nobody waits for another
worker in an exchange. Three rules make it right:

* What is written appears at its place only when it is whole (`beside`).
* Workers of one host take turns at a path, and whoever finds there what it is about to write does
  not write it again (`turns`). A host writes one copy, however many workers it has.
* A checkpoint is deleted when the last worker of the host that keeps it gives it up.
"""
