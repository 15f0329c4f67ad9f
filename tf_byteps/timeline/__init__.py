"""When each part of each tensor was where: recorded by the engine, written as a Chrome trace.

`BYTEPS_TIMELINE`, or `tf_byteps.start_timeline`, has every worker record and write a file that
Perfetto and chrome://tracing show; `read` gives the same as objects. All times are nanoseconds
since 1970. Those of an arrival and of an answer are by the server's clock, all others by the
worker's: on different machines they differ by what the clocks do.

`python -m tf_byteps.timeline DIR` says what a step is made of, and merges all workers' files.

| module | |
|---|---|
| `worker_recorder`, `server_recorder`, `scheduler_recorder` | what a process records |
| `python_steps` | when Keras called each step |
| `files` | the files of all processes of a job |
| `parts` | what was recorded, read from them |
| `trace` | the Chrome trace of a worker |
| `recording` | what all processes have recorded, by one clock |
| `clocks`, `drift` | how far their clocks are apart |
| `job_trace` | the Chrome trace of a job |
| `steps`, `causes`, `explain` | what steps are made of, and what they wait for |
| `report` | `python -m tf_byteps.timeline` |
"""

from tf_byteps.timeline.parts import Part, read
from tf_byteps.timeline.worker_recorder import MAX_PARTS

__all__ = ["MAX_PARTS", "Part", "read"]
