"""The lifecycle of tf_byteps in a worker process: the only owner of its engine.

`init` brings the process into its job, `shutdown` says goodbye to the others. A process that hosts
a server or the scheduler stays in `shutdown` until the others have left, too (protocol rule 21).

`session` is the time between the two, `lifecycle` begins and ends it, and `facts` answers questions
of it.
"""

from tf_byteps.runtime.facts import (
    arrival_lags as arrival_lags,
    coming_change as coming_change,
    config as config,
    cross_rank as cross_rank,
    cross_size as cross_size,
    epoch as epoch,
    is_homogeneous as is_homogeneous,
    local_rank as local_rank,
    local_size as local_size,
    lost_process as lost_process,
    own_address as own_address,
    rank as rank,
    requested_config as requested_config,
    server_counters as server_counters,
    session as session,
    size as size,
)
from tf_byteps.runtime.lifecycle import (
    init as init,
    is_initialized as is_initialized,
    leave_epoch as leave_epoch,
    note_exit as note_exit,
    shutdown as shutdown,
    start_timeline as start_timeline,
    stop_timeline as stop_timeline,
)
from tf_byteps.runtime.session import op_determinism as op_determinism
