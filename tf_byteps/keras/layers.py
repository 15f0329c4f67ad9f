"""Layers for large embeddings: tables whose rows are spread over the workers.

See docs/embeddings.md.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_byteps.gradients import table_optimizers
from tf_byteps.strategy.step import local_batch
from tf_byteps.tables import (
    combining,
    features,
    keyed,
    keyed_files,
    layout as layouts,
    on_servers,
    places,
    saving,
)
from tf_byteps.tables.configs import FeatureConfig, TableConfig
from tf_byteps.tables.initial_rows import InitialRows
from tf_byteps.tables.keyed_files import KeyedRows
from tf_byteps.tables.layout import Layout, ServerLayout, Stack
from tf_byteps.tables.plan import Plan, features_from
from tf_byteps.tables.vocabularies import DynamicVocabulary

__all__ = ["DistributedEmbedding", "DynamicVocabulary", "FeatureConfig", "KeyedRows", "TableConfig"]


@keras.saving.register_keras_serializable("tf_byteps")
class DistributedEmbedding(keras.layers.Layer):
    """Embeddings in tables of which each worker of a `BytePSStrategy` has `1 / workers`.

    A step asks the workers that have the rows for them, and sends them the rows' gradients. Bytes
    and memory of a worker do not grow with the number of workers, and results are those of plain
    embeddings in one process. In one process it needs no strategy.

    Layers and models are called by all workers alike: looking up is an exchange. An optimizer that
    touches single rows (`keras.optimizers.SGD`, `Adagrad`, those of
    `tf_byteps.keras.optimizers`) takes time for the rows of a step; others for all of a worker.

    Args:
        feature_configs: a `FeatureConfig`, or lists and dicts of them. Inputs have the same
            structure.
        table_stacking: accepted for compatibility and not used: tables of one width are stacked.
        update_stats: accepted for compatibility and not used.
        **kwargs: those of `keras.layers.Layer`.

    Raises:
        ValueError: two tables have one name, or there is no feature.
        NotImplementedError: Keras does not run on TensorFlow.

    Example:
        >>> layers = tf_byteps.keras.layers
        >>> words = layers.TableConfig("words", 1_000_000, 64, combiner="sum")
        >>> with tf_byteps.BytePSStrategy().scope():
        ...     layer = layers.DistributedEmbedding({"title": layers.FeatureConfig("title", words)})
        ...     title = keras.Input([20], dtype="int64")
        ...     model = keras.Model({"title": title}, layer({"title": title})["title"])
    """

    def __init__(
        self,
        feature_configs: object,
        *,
        table_stacking: object = "auto",
        update_stats: bool = False,
        **kwargs: Any,
    ) -> None:
        del table_stacking, update_stats
        if keras.backend.backend() != "tensorflow":
            raise NotImplementedError(
                "DistributedEmbedding works with Keras on TensorFlow, and Keras runs on "
                f"{keras.backend.backend()}: set KERAS_BACKEND=tensorflow, or use "
                "keras.layers.Embedding"
            )
        super().__init__(**kwargs)
        self.supports_jit = False  # how many rows come is known only when a step runs
        self._plan = Plan(feature_configs)
        self._stacks: tuple[Stack, ...] = ()

    def build(self, input_shape: object = None) -> None:
        """Makes this worker's rows. Keras calls it.

        Raises:
            RuntimeError: there are several workers, and no `BytePSStrategy` is in use, or the job
                is elastic and not all tables are on servers of their own.
        """
        del input_shape
        if self.built:
            return
        place = places.of_worker(self.name, self._plan.tables.values())
        stacks: list[Stack] = []
        for tables in self._plan.groups():
            before = sum(stack.variable.shape[1] == tables[0].embedding_dim for stack in stacks)
            stacks.append(self._stack(tables, f"_{before}" if before else "", *place))
        self._stacks = tuple(stacks)
        for variable in self.variables:  # TensorFlow's checkpoints have what is an attribute
            setattr(self, f"_variable_{variable.name}", variable)
        self.built = True

    def _stack(self, tables: list[TableConfig], suffix: str, workers: int, rank: int) -> Stack:
        """This worker's rows of tables that one variable can have."""
        width, optimizer = tables[0].embedding_dim, tables[0].optimizer
        if tables[0].placement == "servers" and (workers > 1 or places.in_elastic_job()):
            return self._on_servers(tables[0], suffix, workers, rank)
        if tables[0].vocabulary is not None:
            stack = keyed.make(
                tables, workers, rank, suffix, self.add_weight, table_optimizers.made_for
            )
            setattr(self, f"_optimizer_of_{stack.variable.name}", stack.optimizer)
            return stack
        sizes = tuple((table.name, table.vocabulary_size) for table in tables)
        layout = Layout(sizes, workers, rank)
        variable = self.add_weight(
            name=f"rows_of_{width}{suffix}",
            shape=(layout.rows_of_worker, width),
            initializer=InitialRows(tables, layout),
            autocast=False,  # rows are cast when they have been looked up
        )
        saving.note_rows(variable, layout)
        if optimizer is None:
            return Stack(variable, layout)
        own = table_optimizers.made_for(variable, optimizer)
        setattr(self, f"_optimizer_of_{variable.name}", own)  # TensorFlow's checkpoints have it so
        return Stack(variable, layout, own)

    def _on_servers(self, table: TableConfig, suffix: str, workers: int, rank: int) -> Stack:
        """A table on the servers, and a variable that stands for it."""
        variable = self.add_weight(
            name=f"rows_of_{table.embedding_dim}{suffix}",
            shape=(1, table.embedding_dim),
            initializer="zeros",
            autocast=False,
        )
        sizes = ((table.name, table.vocabulary_size),)
        with tf.init_scope():
            found = on_servers.make(table, variable.dtype)
        layout = ServerLayout(sizes, workers, rank, found, variable.dtype)
        saving.note_rows(variable, layout)
        kind = on_servers.optimizer_class(table.optimizer)
        own = table_optimizers.made_for(variable, table.optimizer, kind)
        on_servers.note_states(own, layout)
        setattr(self, f"_optimizer_of_{variable.name}", own)
        return Stack(variable, layout, own)

    @property
    def table_optimizers(self) -> dict[str, keras.optimizers.Optimizer]:
        """The optimizers of the tables that have their own, by the tables' names.

        Tables of one width whose optimizers are equal share one. It is there once the layer is
        built: `layer.table_optimizers["users"].learning_rate = 0.01`.
        """
        return {
            name: stack.optimizer
            for stack in self._stacks
            if stack.optimizer is not None
            for name, _ in stack.layout.tables
        }

    def call(self, inputs: object, weights: object = None, training: bool = False) -> Any:
        """Looks up the features of a batch.

        Args:
            inputs: of the structure of `feature_configs`: integer tensors of shape `[samples]` or
                `[samples, indices]`, `tf.RaggedTensor`s or `tf.SparseTensor`s; without a combiner
                dense ones of any shape. Or what `preprocess` has returned.
            weights: `None`, or of the same structure, kinds and shapes: what rows are multiplied by
                before they are combined. 0 leaves an index out.
            training: whether keys of tables with a `DynamicVocabulary` may get rows.

        Returns:
            The same structure of tensors: `[samples, embedding_dim]`, or of the input's shape and
            `embedding_dim` without a combiner.

        Raises:
            ValueError: shapes do not fit.
            tf.errors.InvalidArgumentError: an index is not in its table.
        """
        plan = self._plan
        lookups = [
            combining.of_feature(*each)
            for each in zip(plan.features, *plan.given(inputs, weights), strict=True)
        ]
        of_stacks = [
            [each for each in lookups if stack.layout.has(each.feature.table.name)]
            for stack in self._stacks
        ]
        found = features.look_up(self._stacks, of_stacks, _counts, bool(training))
        outputs: dict[int, tf.Tensor] = {}
        for of_stack, rows in zip(of_stacks, found, strict=True):
            for each, its_rows in zip(of_stack, rows, strict=True):
                its_rows = tf.cast(its_rows, self.compute_dtype)
                outputs[id(each)] = combining.combined(each, its_rows)
        return plan.packed([outputs[id(each)] for each in lookups])

    def preprocess(self, inputs: object, weights: object = None, training: bool = False) -> Any:
        """Puts inputs and weights into one structure, for programs that call this of Keras-RS.

        Args:
            inputs: see `call`.
            weights: see `call`.
            training: not used.

        Returns:
            A dict that is an input of `call`.

        Raises:
            ValueError: they have another structure than `feature_configs`.
        """
        del training
        return self._plan.preprocessed(inputs, weights)

    def get_embedding_tables(self) -> dict[str, Any]:
        """All tables, whole. With several workers a collective, and memory for all of them.

        Returns:
            A dict of each table's name and an array of shape `[vocabulary_size, embedding_dim]`.
            For a table with a `DynamicVocabulary`: `KeyedRows`, a tuple of keys, their rows, and
            the row of all other keys.
        """
        found: dict[str, Any] = {}
        for stack in self._stacks:
            is_spread = layouts.of(stack.variable) is not None
            take = saving.whole if is_spread else saving.saved
            if stack.keyed is not None:
                found.update(keyed_files.tables_of(stack, take))
            else:
                found.update(stack.by_table(take(stack.variable)))
        return {name: found[name] for name in self._plan.tables}

    def set_embedding_tables(self, tables: Mapping[str, Any]) -> None:
        """Sets tables, of which each worker takes its rows.

        Args:
            tables: a dict of the names of all tables and what `get_embedding_tables` gives, the
                same on all workers. With a `DynamicVocabulary` a pair of keys and rows is enough,
                and what the optimizer keeps for the rows begins anew.

        Raises:
            ValueError: a table is missing, or has another shape.
        """
        missing = [name for name in self._plan.tables if name not in tables]
        if missing:
            raise ValueError(f"the table {missing[0]!r} is missing, got {sorted(tables)}")
        for stack in self._stacks:
            if stack.keyed is not None:
                keyed_files.check(stack, tables)
        self._set_numbered(tables)
        for stack in self._stacks:
            if stack.keyed is not None:
                keyed_files.set_tables(stack, tables)

    def _set_numbered(self, tables: Mapping[str, Any]) -> None:
        """Sets the tables whose rows have numbers."""
        stacks = [stack for stack in self._stacks if stack.keyed is None]
        for name in (name for stack in stacks for name, _ in stack.layout.tables):
            expected = self._plan.tables[name].shape
            shape = np.shape(tables[name]) if name in tables.keys() else None
            if shape != expected:
                raise ValueError(
                    f"the table {name!r} must have shape {expected}, got "
                    f"{'none of this name' if shape is None else shape}"
                )
        for stack in stacks:
            names = [name for name, _ in stack.layout.tables]
            whole = np.concatenate([np.asarray(tables[name]) for name in names])
            stack.variable.assign(saving.own_rows(whole, stack.layout))

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Puts each whole table into a store of Keras's, under its name. Keras calls it."""
        for stack in self._stacks:
            if stack.keyed is not None:
                keyed_files.save(stack, store)
                continue
            for name, rows in stack.by_table(saving.saved(stack.variable)).items():
                store[name] = rows

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Takes this worker's rows from a store of Keras's. Keras calls it."""
        keyed_stacks = [stack for stack in self._stacks if stack.keyed is not None]
        found = [keyed_files.read(stack, store) for stack in keyed_stacks]
        self._set_numbered({name: store[name] for name in store.keys()})
        for stack, values in zip(keyed_stacks, found, strict=True):
            keyed_files.assign(stack, values)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal layer."""
        return {**super().get_config(), **self._plan.get_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DistributedEmbedding:
        """The layer that `get_config` has described."""
        features, others = features_from(config)
        return cls(features, **others)


def _counts(lookups: combining.Lookups) -> tf.Tensor:
    """1 for each key that counts as seen: not for masked ones, nor for those of an empty batch."""
    counts = tf.ones_like(lookups.indices)
    if lookups.weights is not None:
        counts *= tf.cast(tf.not_equal(lookups.weights, 0), counts.dtype)
    batch = local_batch.current()
    if batch is not None and batch.is_empty is not None:
        counts *= 1 - tf.cast(batch.is_empty, counts.dtype)
    return counts
