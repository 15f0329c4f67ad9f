"""Which calls of CUDA's end while a stream waits for a word in the host's memory?

    python -m benchmarks.gpu.calls_beside_wait

A compiled step waits so for what servers send (cc/staging/local_group_alone.cc), and they send it
only when they have got this worker's gradients. So nothing between a gradient's copy to the host
and the word may need a call that ends only when the stream goes on. For each call, in a process of
its own:

* ends: it ends while the stream waits;
* word: a copy that was queued before ends on another stream, and the host sees the word that the
  GPU writes behind it;
* function: the same with a host function behind the copy (cuLaunchHostFunc);
* slept: a thread that waited for that copy's event before the call (cuEventSynchronize) wakes up;
* event: a thread that begins to wait for the event now wakes up;
* copy: another thread can copy, and wait for its copy;
* create, destroy: another thread can create, or destroy, an event;
* pin: another thread can pin memory.

Needs CUDA's driver and one GPU.
"""

import concurrent.futures
import ctypes
import json
import mmap
import subprocess
import sys
import threading
import time

_PATIENCE_SECONDS = 1.0
_BYTES = 4 << 20
_QUEUED = 3000
_SIDE_BY_SIDE = 6
_COLUMNS = ("ends", "word", "function", "slept", "event", "copy", "create", "destroy", "pin")
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing(.param .u64 to) { ret; }
"""


class _Gpu:
    """CUDA's driver and what the cases share."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.enter()
        self.waiting, self.other, self.third = self.stream(), self.stream(), self.stream()
        self.pinned = self.host_memory()
        self.spare_pinned = self.host_memory()
        self.registered = self.pages()
        self.call("cuMemHostRegister_v2", self.registered, ctypes.c_size_t(_BYTES), 1)
        self.memory, self.spare_memory = self.gpu_memory(), self.gpu_memory()
        self.event, self.spare_event = self.new_event(), self.new_event()
        self.copies, self.copied = self.stream(), self.new_event()
        self.event_to_destroy = self.new_event()
        self.pageable = ctypes.create_string_buffer(_BYTES)
        self.word = ctypes.cast(self.host_memory(), ctypes.POINTER(ctypes.c_uint32))
        for index in range(3):
            self.word[index] = 0
        self.graph = self.new_graph()

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name} returned {result}")

    def enter(self):
        self.call("cuCtxPushCurrent_v2", self.context)

    def stream(self):
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)
        return made

    def host_memory(self):
        made = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(made), ctypes.c_size_t(_BYTES), 1)
        return made

    def pages(self):
        self._pages = getattr(self, "_pages", [])
        self._pages.append(mmap.mmap(-1, _BYTES))
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(self._pages[-1])))

    def pin(self):
        self.call("cuMemHostRegister_v2", self.pages(), ctypes.c_size_t(_BYTES), 1)

    def gpu_memory(self):
        made = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(made), ctypes.c_size_t(_BYTES))
        return made

    def new_event(self):
        made = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(made), 3)
        return made

    def new_graph(self):
        self.call("cuStreamBeginCapture_v2", self.other, 2)
        for _ in range(50):
            self.call("cuMemsetD32Async", self.memory, 0, ctypes.c_size_t(256), self.other)
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamEndCapture", self.other, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        self.call("cuGraphLaunch", made, self.other)
        self.call("cuStreamSynchronize", self.other)
        return made

    def wait_for_word(self):
        self.call("cuStreamWaitValue32_v2", self.waiting, self.word, 1, 1)

    def queue_copy(self):
        """A copy that another word holds back, and all that can tell that it has ended."""
        size = ctypes.c_size_t(_BYTES)
        self.called = []
        self.callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.called.append(1))
        self.call("cuStreamWaitValue32_v2", self.copies, self.address_of_word(1), 1, 1)
        self.call("cuMemcpyDtoHAsync_v2", self.pinned, self.memory, size, self.copies)
        self.call("cuStreamWriteValue32_v2", self.copies, self.address_of_word(2), 1, 0)
        self.call("cuEventRecord", self.copied, self.copies)
        self.call("cuLaunchHostFunc", self.copies, self.callback, None)

    def address_of_word(self, index):
        return ctypes.c_uint64(ctypes.addressof(self.word.contents) + 4 * index)

    def copy_and_wait(self):
        """What a thread of the engine does with each gradient."""
        size = ctypes.c_size_t(_BYTES)
        self.call("cuMemcpyDtoHAsync_v2", self.pinned, self.memory, size, self.other)
        self.call("cuEventRecord", self.event, self.other)
        self.call("cuEventSynchronize", self.event)

    def load_and_launch(self, stream):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"nothing")
        to = ctypes.c_uint64(0)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(to), ctypes.c_void_p))
        self.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)


def _behind(gpu, copy):
    gpu.call("cuEventRecord", gpu.spare_event, gpu.waiting)
    gpu.call("cuStreamWaitEvent", gpu.third, gpu.spare_event, 0)
    copy()


def _to_gpu(gpu, source, stream):
    size = ctypes.c_size_t(_BYTES)
    gpu.call("cuMemcpyHtoDAsync_v2", gpu.spare_memory, source, size, stream)


def _memset(gpu):
    gpu.call("cuMemsetD32Async", gpu.spare_memory, 0, ctypes.c_size_t(256), gpu.waiting)


CASES = {
    "nothing": lambda gpu: None,
    "cuStreamSynchronize of the stream": lambda gpu: gpu.call("cuStreamSynchronize", gpu.waiting),
    "cuCtxSynchronize": lambda gpu: gpu.call("cuCtxSynchronize"),
    "cuMemHostRegister": lambda gpu: gpu.pin(),
    "cuMemHostUnregister": lambda gpu: gpu.call("cuMemHostUnregister", gpu.registered),
    "cuMemHostAlloc": lambda gpu: gpu.host_memory(),
    "cuMemFreeHost": lambda gpu: gpu.call("cuMemFreeHost", gpu.spare_pinned),
    "cuMemAlloc": lambda gpu: gpu.gpu_memory(),
    "cuMemFree": lambda gpu: gpu.call("cuMemFree_v2", gpu.spare_memory),
    "cuModuleLoadData, first launch on the stream": lambda gpu: gpu.load_and_launch(gpu.waiting),
    "cuModuleLoadData, first launch elsewhere": lambda gpu: gpu.load_and_launch(gpu.third),
    "cuEventCreate, cuStreamCreate": lambda gpu: (gpu.new_event(), gpu.stream()),
    "cuEventDestroy": lambda gpu: gpu.call("cuEventDestroy_v2", gpu.spare_event),
    "cuStreamDestroy of the stream": lambda gpu: gpu.call("cuStreamDestroy_v2", gpu.waiting),
    "cuMemcpyHtoDAsync, pinned, behind it": lambda gpu: _to_gpu(gpu, gpu.spare_pinned, gpu.waiting),
    "cuMemcpyHtoDAsync, pageable, behind it": lambda gpu: _to_gpu(gpu, gpu.pageable, gpu.waiting),
    "cuMemcpyHtoDAsync, pageable, elsewhere": lambda gpu: _to_gpu(gpu, gpu.pageable, gpu.third),
    "cuMemcpyHtoDAsync, pageable, on a stream that waits for it": lambda gpu: _behind(
        gpu, lambda: _to_gpu(gpu, gpu.pageable, gpu.third)
    ),
    "cuMemcpyDtoHAsync, pageable, behind it": lambda gpu: gpu.call(
        "cuMemcpyDtoHAsync_v2", gpu.pageable, gpu.spare_memory, ctypes.c_size_t(_BYTES), gpu.waiting
    ),
    f"{_QUEUED} x cuMemsetD32Async behind it": lambda gpu: [_memset(gpu) for _ in range(_QUEUED)],
    f"{_QUEUED // 10} x cuGraphLaunch behind it": lambda gpu: [
        gpu.call("cuGraphLaunch", gpu.graph, gpu.waiting) for _ in range(_QUEUED // 10)
    ],
}


class _Thread(threading.Thread):
    """A thread that does `work`, and keeps what it fails with."""

    def __init__(self, gpu, work):
        super().__init__(daemon=True)
        self._gpu, self._work, self.failure = gpu, work, None
        self.start()

    def run(self):
        try:
            self._gpu.enter()
            self._work()
        except RuntimeError as error:
            self.failure = str(error)

    def ended(self, seconds=_PATIENCE_SECONDS):
        self.join(seconds)
        return not self.is_alive()


def _measure(name):
    gpu = _Gpu()
    gpu.copy_and_wait()
    gpu.wait_for_word()
    gpu.queue_copy()
    slept = _Thread(gpu, lambda: gpu.call("cuEventSynchronize", gpu.copied))
    time.sleep(0.1)
    case = _Thread(gpu, lambda: CASES[name](gpu))
    seen = {"ends": case.ended()}
    gpu.word[1] = 1
    time.sleep(_PATIENCE_SECONDS)
    seen["word"] = gpu.word[2] == 1
    seen["function"] = bool(gpu.called)
    seen["slept"] = slept.ended(0)
    event = _Thread(gpu, lambda: gpu.call("cuEventSynchronize", gpu.copied))
    copy = _Thread(gpu, gpu.copy_and_wait)
    create = _Thread(gpu, gpu.new_event)
    destroy = _Thread(gpu, lambda: gpu.call("cuEventDestroy_v2", gpu.event_to_destroy))
    pin = _Thread(gpu, gpu.pin)
    seen |= {"event": event.ended(), "copy": copy.ended(), "create": create.ended()}
    seen |= {"destroy": destroy.ended(), "pin": pin.ended()}
    gpu.word[0] = 1
    time.sleep(0.2)
    print(json.dumps([seen, case.failure or copy.failure]), flush=True)


def _row(name):
    command = [sys.executable, "-m", "benchmarks.gpu.calls_beside_wait", name]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except subprocess.TimeoutExpired:
        return f"{name:60} does not end at all"
    except subprocess.CalledProcessError as error:
        return f"{name:60} {error.stderr[-300:]}"
    seen, failure = json.loads(ran.stdout)
    cells = [f"{'yes' if seen[column] else 'NO':{len(column)}}" for column in _COLUMNS]
    return f"{name:60} {' '.join(cells)} {failure or ''}"


def main():
    if len(sys.argv) > 1:
        return _measure(sys.argv[1])
    print(f"{'call, beside a stream that waits for the host':60} {' '.join(_COLUMNS)}")
    with concurrent.futures.ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for line in pool.map(_row, CASES):
            print(line, flush=True)


if __name__ == "__main__":
    main()
