"""What BytePSStrategy costs a compiled step on one GPU, and where its time goes.

    python -m benchmarks.gpu.compiled bert-large gpt2 resnet50

`Model.fit` with Keras's defaults, without a strategy and as a job of one worker, whose exchanges
are all in the program and move nothing. All programs compile side by side; then they are measured
one after the other, and once more under TensorFlow's profiler (which takes CUDA graphs apart, so
that its times are longer).
"""

import argparse
import collections
import glob
import itertools
import json
import statistics
import subprocess
import sys
import tempfile

from benchmarks.sessions import ROOT

_STEPS = 20
_PROFILED_STEPS = 5
_OURS = "BytePSPushPull"
_PROGRAM = "GpuExecutable::ExecuteThunks"
_MILLISECOND = 1e9  # in picoseconds, as a profile has them


def _train(strategy_name, model_name):
    """A child: compiles, waits for a line on standard input, measures, prints a JSON object."""
    sys.path.append(str(ROOT / "examples"))
    import keras
    import keras_synthetic_benchmark as synthetic
    import tensorflow as tf

    assert tf.config.list_physical_devices("GPU"), "TensorFlow sees no GPU"
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(1)
    strategy, _ = synthetic.make_strategy(strategy_name)
    make, batch = synthetic.MODELS[model_name]
    with strategy.scope():
        model, data, classes = make(batch)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(synthetic._optimizer(), loss)
    labels = synthetic._labels(model, classes, batch)
    batches = tf.data.Dataset.from_tensors((data, labels)).repeat()
    epochs = synthetic._Epochs()

    def fit(steps, number=1, callbacks=()):
        options = {"verbose": 0, "shuffle": False, "callbacks": list(callbacks)}
        model.fit(batches, steps_per_epoch=steps, epochs=number, **options)

    fit(6)
    memory = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    gradients = sum(4 * weight.value.shape.num_elements() for weight in model.trainable_variables)
    print("ready", flush=True)
    input()
    fit(4)
    fit(_STEPS, 3, [epochs])
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            fit(_PROFILED_STEPS)
        profile = _read_profile(glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)[0])
    milliseconds = [seconds / _STEPS * 1e3 for seconds in epochs.seconds]
    results = {"milliseconds": milliseconds, "memory": memory, "gradients": gradients}
    print(json.dumps({**results, **profile}), flush=True)


def _read_profile(path):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with open(path, "rb") as file:
        space = xplane_pb2.XSpace.FromString(file.read())
    planes = {plane.name: plane for plane in space.planes}
    return {**_on_gpu(planes.get("/device:GPU:0")), **_on_host(planes["/host:CPU"])}


def _events(plane, line):
    """Begin, end and name of a line's events, in order."""
    names = plane.event_metadata
    begin = line.timestamp_ns * 1000
    return sorted(
        (begin + e.offset_ps, begin + e.offset_ps + e.duration_ps, names[e.metadata_id].name)
        for e in line.events
    )


def _on_gpu(plane):
    if plane is None:
        return {"kernels": 0, "busy": float("nan")}  # without CUPTI
    streams = [line for line in plane.lines if line.name.startswith("Stream")]
    events = sorted(itertools.chain(*(_events(plane, line) for line in streams)))
    busy, end = 0, 0
    for begin, until, _ in events:
        busy += max(0, until - max(begin, end))
        end = max(end, until)
    return {
        "kernels": len(events) / _PROFILED_STEPS,
        "busy": busy / _PROFILED_STEPS / _MILLISECOND,
    }


def _on_host(plane):
    """What the threads that run the compiled program do in a step."""
    time, calls, timeline = collections.Counter(), collections.Counter(), []
    for line in plane.lines:
        events = _events(plane, line)
        for begin, end, name in events:
            kind = "ours" if name.startswith(_OURS) else name
            time[kind] += (end - begin) / _PROFILED_STEPS / _MILLISECOND
            calls[kind] += 1 / _PROFILED_STEPS
        steps = [event for event in events if event[2] == _PROGRAM]
        if not timeline and len(steps) > 1:
            timeline = _between(events, steps[-2][1], steps[-1][1])
    return {
        "graphs": calls["command_buffer"],
        "calls": calls["ours"],
        "calls_ms": time["ours"],
        "program_ms": time[_PROGRAM],
        "timeline": timeline,
    }


def _between(events, first, last):
    """Those that take 0.1 ms or more: milliseconds after `first`, milliseconds, name."""
    return [
        ((begin - first) / _MILLISECOND, (end - begin) / _MILLISECOND, name)
        for begin, end, name in events
        if begin < last and end > first and end - begin > _MILLISECOND / 10
    ]


def _start(strategy, model):
    command = [sys.executable, "-m", "benchmarks.gpu.compiled", model, "--child", strategy]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)


def _wait_for(child, accept):
    for line in child.stdout:
        if accept(line):
            return line
    raise SystemExit(f"{' '.join(child.args)} ended with code {child.wait()}")


def _report(model, results, with_timeline):
    alone = statistics.median(results["none"]["milliseconds"])
    for strategy, result in results.items():
        times = result["milliseconds"]
        print(
            f"{model}, {strategy}: {statistics.median(times):.2f} ms a step "
            f"({min(times):.2f} to {max(times):.2f}), {alone / statistics.median(times):.1%}; "
            f"peak memory {result['memory'] / 1e6:.0f} MB, gradients "
            f"{result['gradients'] / 1e6:.0f} MB; "
            f"profiled: GPU busy {result['busy']:.1f} ms with {result['kernels']:.0f} kernels and "
            f"copies, host {result['program_ms']:.1f} ms in the program, {result['graphs']:.0f} "
            f"graphs, {result['calls']:.0f} calls of ours ({result['calls_ms']:.1f} ms)",
            flush=True,
        )
        for begin, duration, name in result["timeline"] if with_timeline else ():
            print(f"    {begin:8.2f} {duration:7.2f} {name[:100]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", help="of examples/keras_synthetic_benchmark.py")
    parser.add_argument("--timeline", action="store_true", help="prints a step of the host thread")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _train(options.child, options.models[0])
    programs = list(itertools.product(options.models, ("none", "byteps")))
    children = {program: _start(program[1], program[0]) for program in programs}
    for child in children.values():
        _wait_for(child, lambda line: line == "ready\n")
    for model in options.models:
        results = {}
        for strategy in ("none", "byteps"):
            child = children[model, strategy]
            child.stdin.write("\n")
            child.stdin.flush()
            results[strategy] = json.loads(_wait_for(child, lambda line: line.startswith("{")))
            child.wait()
        _report(model, results, options.timeline)


if __name__ == "__main__":
    main()
