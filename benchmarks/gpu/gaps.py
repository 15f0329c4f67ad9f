"""When a GPU has nothing to do: the gaps between its kernels, in a profile of some steps.

    python examples/keras_synthetic_benchmark.py --model resnet50 --mixed --profile FOLDER
    python -m benchmarks.gpu.gaps FOLDER

The profile is TensorFlow's, which needs the CUPTI of CUDA 12 (nvidia-cuda-cupti-cu12). Profiled
steps take longer than others, most of all on the CPU.
"""

import argparse
import pathlib

from tensorflow.tsl.profiler.protobuf import xplane_pb2

_COMPUTES = "Compute"  # in the names of the streams that have kernels


def kernels(path):
    """The kernels of a profile's first GPU as (begin, end, name), by their begin; milliseconds."""
    profile = xplane_pb2.XSpace.FromString(path.read_bytes())
    gpus = [plane for plane in profile.planes if plane.name.startswith("/device:GPU")]
    if not gpus:
        raise SystemExit(f"{path} has no GPU: was CUPTI found?")
    found = []
    for line in gpus[0].lines:
        if _COMPUTES not in line.name:
            continue
        for event in line.events:
            begin = line.timestamp_ns * 1e-6 + event.offset_ps * 1e-9
            name = gpus[0].event_metadata[event.metadata_id].name
            found.append((begin, begin + event.duration_ps * 1e-9, name))
    if not found:
        raise SystemExit(f"{path} has a GPU, but none of its kernels")
    return sorted(found)


def gaps(busy, least):
    """(begin, length, the kernels before and after) of each time without one of `busy`."""
    _, end, before = busy[0]
    for begin, kernel_end, name in busy[1:]:
        if begin - end >= least:
            yield end, begin - end, before, name
        if kernel_end > end:
            end, before = kernel_end, name


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.gaps", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=pathlib.Path, help="that --profile has written")
    parser.add_argument("--least", type=float, default=1.0, help="milliseconds of a gap")
    options = parser.parse_args()
    paths = sorted(options.folder.rglob("*.xplane.pb"))
    if not paths:
        raise SystemExit(f"no profile (*.xplane.pb) in {options.folder}")
    for path in paths:
        busy = kernels(path)
        first, last = busy[0][0], max(end for _, end, _ in busy)
        print(f"{path.relative_to(options.folder)}: {len(busy)} kernels in {last - first:.1f} ms")
        for begin, length, before, after in gaps(busy, options.least):
            print(f"  {length:6.2f} ms from {begin - first:7.1f}, {before[:36]} … {after[:36]}")


if __name__ == "__main__":
    main()
