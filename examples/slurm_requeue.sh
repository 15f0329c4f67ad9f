#!/bin/bash
# A training longer than a job may be: sbatch examples/slurm_requeue.sh [command of the workers]
#
# What it teaches:
# * 60 s before the time limit Slurm sends SIGUSR1 to this script, which tells bpslaunch to end.
# * With tf_byteps.keras.callbacks.LeaveOnSignal all workers finish their step, save, and exit with
#   code 143. The job then goes back into the queue.
# * When it starts again, BackupAndRestore goes on from what was saved, in a folder that all nodes
#   share.
#SBATCH --job-name=digits
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue --open-mode=append

[ $# -gt 0 ] || set -- python train.py
is_told=
trap 'is_told=yes; kill -TERM $training' USR1
bpslaunch --grace 50 "$@" &
training=$!
wait $training
code=$?
if [ $is_told ]; then # the signal has ended the wait
    wait $training
    code=$?
fi
if [ $code = 143 ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
