"""All that tf_byteps uses of TensorFlow beyond its public interface.

The list to look at when a new TensorFlow comes. What is replaced there while a program runs is in
`strategy.keras_hooks`.
"""

# ruff: noqa: F401

from tensorflow.python.autograph.core import ag_ctx as autograph_context, config as autograph_config
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.checkpoint import checkpoint, checkpoint_management, functional_saver
from tensorflow.python.checkpoint.graph_view import ObjectGraphView
from tensorflow.python.data.experimental.ops import distribute as data_distribute
from tensorflow.python.data.ops import dataset_ops, save_op
from tensorflow.python.data.ops.iterator_ops import OwnedIterator
from tensorflow.python.data.util import random_seed as data_random_seed
from tensorflow.python.distribute import (
    device_util,
    distribute_lib,
    distribute_utils,
    input_lib,
    numpy_dataset,
    values_util,
)
from tensorflow.python.distribute.v1 import input_lib as input_lib_v1
from tensorflow.python.eager import context as eager_context, record as tape_record
from tensorflow.python.eager.polymorphic_function import function_context
from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework import (
    config as framework_config,
    op_callbacks,
    op_def_registry,
    ops as framework_ops,
    random_seed,
)
from tensorflow.python.framework.auto_control_deps_utils import RESOURCE_READ_OPS
from tensorflow.python.lib.io import file_io
from tensorflow.python.ops import (
    cond as tensorflow_cond,
    control_flow_util,
    control_flow_v2_func_graphs,
    gen_dataset_ops,
    gen_experimental_dataset_ops,
    gen_functional_ops,
    gen_resource_variable_ops,
    while_loop as tensorflow_while,
)
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, ResourceVariable
from tensorflow.python.saved_model import (
    load as saved_model_load,
    save as saved_model_save,
    save_context,
)
from tensorflow.python.trackable.autotrackable import AutoTrackable
from tensorflow.python.trackable.base import (
    OBJECT_GRAPH_PROTO_KEY,  # pyright: ignore[reportAttributeAccessIssue]
    VARIABLE_VALUE_KEY,  # pyright: ignore[reportAttributeAccessIssue]
)
from tensorflow.python.trackable.resource import CapturableResource
from tensorflow.python.util import tf_stack
