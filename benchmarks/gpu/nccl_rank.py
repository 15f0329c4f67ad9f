"""A GPU whose process calls CUDA and NCCL by ctypes: buffers of several kinds, and their sums."""

import ctypes
import dataclasses
import glob
import os
import struct
import sys

from benchmarks.sessions import BenchmarkError

FLOAT_BYTES = 4
_CALLS = 10  # of a batch


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of memory that is added up.

    Attributes:
        allocator: the function that it comes from.
        registered: whether NCCL is told about it before.
        buffers: how many share the bytes of a call.
    """

    allocator: str
    registered: bool
    buffers: int = 1

    def __str__(self):
        grouped = f"{self.buffers} grouped, " if self.buffers > 1 else ""
        return f"{grouped}{self.allocator}{', registered' if self.registered else ''}"

    @property
    def plain(self):
        """The same kind, not registered."""
        return dataclasses.replace(self, registered=False)


class _UniqueId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_byte * 128),)


_ADDRESS, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_TO_ADDRESS, _TO_INT = ctypes.POINTER(_ADDRESS), ctypes.POINTER(_INT)
# The arguments of the functions used; all return 0 when they succeed.
_CUDA_DRIVER = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (_TO_INT, _INT),
    "cuDeviceGetName": (ctypes.c_char_p, _INT, _INT),
}
_CUDA = {
    "cudaGetDeviceCount": (_TO_INT,),
    "cudaSetDevice": (_INT,),
    "cudaMalloc": (_TO_ADDRESS, _SIZE),
    "cudaMemcpy": (_ADDRESS, _ADDRESS, _SIZE, _INT),
    "cudaMemset": (_ADDRESS, _INT, _SIZE),
    "cudaDeviceSynchronize": (),
    "cudaStreamCreateWithFlags": (_TO_ADDRESS, ctypes.c_uint),
    "cudaEventCreate": (_TO_ADDRESS,),
    "cudaEventRecord": (_ADDRESS, _ADDRESS),
    "cudaEventSynchronize": (_ADDRESS,),
    "cudaEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _ADDRESS, _ADDRESS),
}
_NCCL = {
    "ncclGetVersion": (_TO_INT,),
    "ncclGetUniqueId": (ctypes.POINTER(_UniqueId),),
    "ncclCommInitRank": (_TO_ADDRESS, _INT, _UniqueId, _INT),
    "ncclCommDestroy": (_ADDRESS,),
    "ncclMemAlloc": (_TO_ADDRESS, _SIZE),
    "ncclCommRegister": (_ADDRESS, _ADDRESS, _SIZE, _TO_ADDRESS),
    "ncclCommDeregister": (_ADDRESS, _ADDRESS),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclAllReduce": (_ADDRESS, _ADDRESS, _SIZE, _INT, _INT, _ADDRESS, _ADDRESS),
}
# From CUDA's and NCCL's headers.
_HOST_TO_GPU, _GPU_TO_HOST = 1, 2
_STREAM_NON_BLOCKING = 1
_NCCL_FLOAT32, _NCCL_SUM = 7, 0


def _load(names):
    """Opens the first of some libraries that there is: where the loader looks, then pip's."""
    paths = list(names)
    for name in names:
        for folder in sys.path:
            paths += sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", name)))
    failures = []
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    raise BenchmarkError(f"no library {' or '.join(names)} found: {'; '.join(failures)}")


def _text(library, name, type_of_argument, argument):
    function = getattr(library, name)
    function.argtypes, function.restype = (type_of_argument,), ctypes.c_char_p
    return (function(argument) or b"no text").decode(errors="replace")


def _cuda_text(library, error):
    name = _text(library, "cudaGetErrorName", _INT, error)
    return f"{name} ({_text(library, 'cudaGetErrorString', _INT, error)})"


def _nccl_text(library, error):
    last = _text(library, "ncclGetLastError", _ADDRESS, None)
    return f"{_text(library, 'ncclGetErrorString', _INT, error)} ({last})"


class _Library:
    """A library of C functions: `library(name, *arguments)` calls one and checks its result.

    Args:
        names: of its file; the first that there is.
        functions: the types of their arguments, by name.
        text: a function that takes the opened library and an error, and says what it means.
    """

    def __init__(self, names, functions, text=lambda library, error: f"error {error}"):
        self._library, self._text, self._functions = _load(names), text, {}
        for name, types in functions.items():
            try:
                function = getattr(self._library, name)
            except AttributeError:
                raise BenchmarkError(f"{names[0]} has no {name}: it is too old") from None
            function.argtypes, function.restype = types, _INT
            self._functions[name] = function

    def __call__(self, name, *arguments):
        error = self._functions[name](*arguments)
        if error != 0:
            raise BenchmarkError(f"{name}: {self._text(self._library, error)}")


class Rank:
    """A GPU with its buffers, in its own process. The parent calls all ranks' methods in turn."""

    def __init__(self, rank, ranks):
        self._rank, self._ranks = rank, ranks
        self._pairs, self._registrations = {}, []

    def open(self):
        """Opens the libraries and the GPU; returns the GPU's name, NCCL's version and file."""
        self._cuda = _Library(
            ("libcudart.so.12", "libcudart.so.13", "libcudart.so"), _CUDA, _cuda_text
        )
        self._nccl = _Library(("libnccl.so.2",), _NCCL, _nccl_text)
        count, version = ctypes.c_int(), ctypes.c_int()
        try:
            self._cuda("cudaGetDeviceCount", ctypes.byref(count))
        except BenchmarkError as error:
            raise BenchmarkError(f"no GPU found: {error}") from None
        if count.value < self._ranks:
            raise BenchmarkError(f"--gpus is {self._ranks}, but CUDA sees only {count.value}")
        self._cuda("cudaSetDevice", self._rank)
        self._nccl("ncclGetVersion", ctypes.byref(version))
        with open("/proc/self/maps") as file:
            path = next((line.split()[-1] for line in file if "libnccl.so" in line), "")
        return self._name(), version.value, path

    def _name(self):
        driver = _Library(("libcuda.so.1",), _CUDA_DRIVER)
        device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        driver("cuInit", 0)
        driver("cuDeviceGet", ctypes.byref(device), self._rank)
        driver("cuDeviceGetName", name, len(name), device)
        return name.value.decode(errors="replace")

    def unique_id(self):
        """The name of a new group of ranks, if this is its first rank."""
        made = _UniqueId()
        if self._rank == 0:
            self._nccl("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made)

    def connect(self, unique_id):
        """Joins the other ranks; waits for them."""
        group = _UniqueId.from_buffer_copy(unique_id)
        self._group = self._made(self._nccl, "ncclCommInitRank", self._ranks, group, self._rank)
        self._stream = self._made(self._cuda, "cudaStreamCreateWithFlags", _STREAM_NON_BLOCKING)
        self._begin = self._made(self._cuda, "cudaEventCreate")
        self._end = self._made(self._cuda, "cudaEventCreate")
        self._small = self._made(self._cuda, "cudaMalloc", FLOAT_BYTES)
        self._cuda("cudaMemset", self._small, 0, FLOAT_BYTES)

    def allocate(self, kinds, elements, apart):
        """Makes and registers all buffers, for at most so many elements of a call.

        Args:
            kinds: the same in the same order on all ranks, so that these register the same.
            elements: of all buffers of a kind.
            apart: whether sums go to other buffers than the ones that are added.
        """
        for kind in kinds:
            size = elements // kind.buffers * FLOAT_BYTES
            library = self._nccl if kind.allocator == "ncclMemAlloc" else self._cuda
            pairs = self._pairs[kind] = []
            for _ in range(kind.buffers):
                made = [self._made(library, kind.allocator, size) for _ in range(1 + apart)]
                if kind.registered:
                    self._register(made, size)
                pairs.append((made[0], made[-1]))

    def _register(self, buffers, size):
        for buffer in buffers:
            handle = ctypes.c_void_p()
            self._nccl("ncclCommRegister", self._group, buffer, size, ctypes.byref(handle))
            if not handle:
                raise BenchmarkError("ncclCommRegister does nothing: is NCCL_LOCAL_REGISTER 0?")
            self._registrations.append(handle)

    def check(self, kind, elements):
        """Adds once and compares each element. Leaves zeros, which stay zeros when added."""
        pairs = self._pairs[kind]
        count = elements // len(pairs)
        size = count * FLOAT_BYTES
        numbers = struct.pack("=f", self._rank + 1) * count
        for source, target in pairs:
            self._cuda("cudaMemset", target, 0, size)
            self._cuda("cudaMemcpy", source, numbers, size, _HOST_TO_GPU)
        self._cuda("cudaDeviceSynchronize")
        self._launch(kind, elements)
        self._cuda("cudaDeviceSynchronize")
        right = self._ranks * (self._ranks + 1) / 2
        numbers = struct.pack("=f", right) * count
        found = ctypes.create_string_buffer(size)
        for index, (source, target) in enumerate(pairs):
            self._cuda("cudaMemcpy", found, target, size, _GPU_TO_HOST)
            if found.raw != numbers:
                values = enumerate(memoryview(found.raw).cast("f"))
                place, value = next((i, each) for i, each in values if each != right)
                raise BenchmarkError(
                    f"WRONG SUM in {kind}: element {place} of buffer {index} is {value}, "
                    f"not {right}"
                )
            self._cuda("cudaMemset", source, 0, size)
            self._cuda("cudaMemset", target, 0, size)
        self._cuda("cudaDeviceSynchronize")

    def measure(self, kind, elements):
        """The milliseconds of a call, from a batch."""
        # Ends on all GPUs at once, so that none is charged for another's late start.
        self._all_reduce(self._small, self._small, 1)
        self._cuda("cudaEventRecord", self._begin, self._stream)
        for _ in range(_CALLS):
            self._launch(kind, elements)
        self._cuda("cudaEventRecord", self._end, self._stream)
        self._cuda("cudaEventSynchronize", self._end)
        elapsed = ctypes.c_float()
        self._cuda("cudaEventElapsedTime", ctypes.byref(elapsed), self._begin, self._end)
        return elapsed.value / _CALLS

    def _launch(self, kind, elements):
        pairs = self._pairs[kind]
        if len(pairs) > 1:
            self._nccl("ncclGroupStart")
        for source, target in pairs:
            self._all_reduce(source, target, elements // len(pairs))
        if len(pairs) > 1:
            self._nccl("ncclGroupEnd")

    def _all_reduce(self, source, target, count):
        what = source, target, count, _NCCL_FLOAT32, _NCCL_SUM
        self._nccl("ncclAllReduce", *what, self._group, self._stream)

    def deregister(self):
        for handle in self._registrations:
            self._nccl("ncclCommDeregister", self._group, handle)

    def leave(self):
        """Comes after `deregister` of all ranks. The memory goes with the process."""
        self._nccl("ncclCommDestroy", self._group)

    def _made(self, library, function, *arguments):
        """What a function writes to its first argument."""
        made = ctypes.c_void_p()
        library(function, ctypes.byref(made), *arguments)
        return made
