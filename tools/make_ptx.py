"""Compiles cc/gpu/codec_kernels.cu to PTX and writes it into a header, which is committed.

NVRTC, NVIDIA's compiler as a library, needs no GPU; it comes with the package
nvidia-cuda-nvrtc-cu12 (`make ptx` installs it).
"""

import ctypes
import hashlib
import re
import sysconfig
from pathlib import Path

GPU = Path(__file__).parent.parent / "cc/gpu"
SOURCE = GPU / "codec_kernels.cu"
HEADER = GPU / "codec_kernels_ptx.h"

# GPUs since Pascal.
OPTIONS = [b"--gpu-architecture=compute_60", b"--std=c++17", b"--fmad=false"]
# NVRTC writes its own CUDA's version, which older drivers refuse. These kernels need no more.
PTX_VERSION = "6.0"


def header(ptx: str) -> str:
    """The header's text, which says of which source it is made."""
    return f"""// Made by `make ptx`.
#pragma once

namespace byteps {{

// SHA-256 of codec_kernels.cu: {digest()}
inline constexpr char kCodecKernelsPtx[] = R"ptx({ptx})ptx";

}}  // namespace byteps
"""


def compile_to_ptx(source: bytes) -> str:
    """PTX of CUDA C++ source text; exits with the compiler's messages if it refuses it."""
    folder = Path(sysconfig.get_path("purelib")) / "nvidia/cuda_nvrtc/lib"
    nvrtc = ctypes.CDLL(str(next(folder.glob("libnvrtc.so.*"))))

    def call(name, *arguments):
        result = getattr(nvrtc, name)(*arguments)
        if result != 0:
            raise SystemExit(f"{name}: error {result}\n{log()}")

    def text(size_of, get):
        size = ctypes.c_size_t()
        getattr(nvrtc, size_of)(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, get)(program, buffer)
        return buffer.value.decode()

    def log():
        return text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog")

    program = ctypes.c_void_p()
    name = SOURCE.name.encode()
    call("nvrtcCreateProgram", ctypes.byref(program), source, name, 0, None, None)
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    call("nvrtcCompileProgram", program, len(OPTIONS), options)
    ptx = text("nvrtcGetPTXSize", "nvrtcGetPTX")
    ptx = re.sub(r"//.*\n", "", ptx)
    ptx = re.sub(r"\n{2,}", "\n", ptx)
    return re.sub(r"\.version \S+", f".version {PTX_VERSION}", ptx)


def digest() -> str:
    """SHA-256 of the source, as the header has it."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def main() -> None:
    HEADER.write_text(header(compile_to_ptx(SOURCE.read_bytes())))


if __name__ == "__main__":
    main()
