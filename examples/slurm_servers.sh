#!/bin/sh
# Servers on nodes of their own: sbatch examples/slurm_servers.sh [command of the workers]
#
# What it teaches:
# * A heterogeneous job has nodes of two kinds: here two with GPUs, and one of the cheaper kind.
# * bpslaunch runs a worker for each task of the first component, a server for each of the others.
# * Servers need network and memory, no GPU: they take the sums away from the nodes that train.
#SBATCH --job-name=digits
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH hetjob
#SBATCH --nodes=1 --ntasks=2

# On a real cluster add to the first component: --gpus-per-node=2
[ $# -gt 0 ] || set -- python examples/keras_digits.py
exec bpslaunch "$@"
