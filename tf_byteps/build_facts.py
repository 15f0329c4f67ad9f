"""What Horovod's programs ask about the library before they train. Known without `init`.

tf_byteps is one build for all machines: NCCL and CUDA are loaded where a GPU is, and its own
transport takes the place of MPI and Gloo.
"""


def mpi_threads_supported() -> bool:
    """Whether MPI could be used beside, from several threads: there is no MPI.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.mpi_threads_supported()
    """
    return False


def mpi_enabled() -> bool:
    """Whether this job uses MPI.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.mpi_enabled()
    """
    return False


def mpi_built() -> bool:
    """Whether this build has MPI.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.mpi_built()
    """
    return False


def gloo_enabled() -> bool:
    """Whether this job uses Gloo.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.gloo_enabled()
    """
    return False


def gloo_built() -> bool:
    """Whether this build has Gloo.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.gloo_built()
    """
    return False


def nccl_built() -> bool:
    """Whether this build can use NCCL: among the GPUs of a host, where NCCL is installed.

    Returns:
        `True`.

    Example:

    >>> device = "/GPU:0" if tf_byteps.nccl_built() and tf_byteps.gpu_available() else "/CPU:0"
    """
    return True


def ddl_built() -> bool:
    """Whether this build has IBM's DDL.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.ddl_built()
    """
    return False


def ccl_built() -> bool:
    """Whether this build has Intel's oneCCL.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.ccl_built()
    """
    return False


def cuda_built() -> bool:
    """Whether this build can use CUDA, where a driver is installed.

    Returns:
        `True`.

    Example:

    >>> assert tf_byteps.cuda_built()
    """
    return True


def rocm_built() -> bool:
    """Whether this build can use ROCm.

    Returns:
        `False`.

    Example:

    >>> assert not tf_byteps.rocm_built()
    """
    return False


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Whether TensorFlow sees a GPU in this process.

    Args:
        ext_base_name: accepted for compatibility and not used.
        verbose: accepted for compatibility and not used.

    Returns:
        A boolean.

    Raises:
        ModuleNotFoundError: there is no TensorFlow.

    Example: see `nccl_built`.
    """
    del ext_base_name, verbose
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of workers is a power of two.

    Args:
        num_rank: the number of workers.

    Returns:
        A boolean.

    Raises:
        Nothing.

    Example:

    >>> tf_byteps.num_rank_is_power_2(tf_byteps.size())
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


check_num_rank_power_of_2 = num_rank_is_power_2  # Horovod has both names
