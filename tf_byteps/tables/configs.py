"""What a program says of its tables, and of the features that look up in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras

from tf_byteps.tables import distributions, optimizers
from tf_byteps.tables.vocabularies import DynamicVocabulary

COMBINERS = ("mean", "sum", "sqrtn", None)
_PLACEMENTS = ("auto", "default_device", "servers")


def _initializer() -> Any:
    # A standard deviation of 1 / sqrt(width), as Keras-RS has it.
    return keras.initializers.VarianceScaling(mode="fan_out")


@dataclasses.dataclass(eq=False)
class TableConfig:
    """A table of embeddings, for `DistributedEmbedding`.

    Args:
        name: of the table, without "/".
        vocabulary_size: how many rows it has. Indices are from 0 to below it, without `vocabulary`.
        embedding_dim: how many numbers a row has.
        initializer: a `keras.initializers.Initializer` or its name. Default: normally distributed,
            truncated, with a standard deviation of `1 / sqrt(embedding_dim)`.
        optimizer: a `keras.optimizers.Optimizer` or its name, which updates the rows of this table.
            The layer makes an equal one, with states of its own. Default: the optimizer of
            `Model.compile` updates them, as it does in Keras-RS on CPUs and GPUs.
        combiner: what becomes of several indices of one sample: "mean", "sum" or "sqrtn" of their
            rows; `None` if each keeps its row.
        placement: "auto" or "default_device", which are the same: the workers have the rows.
            "servers": the servers have them, and update them by `optimizer`, which must then be
            given.
        max_ids_per_partition: accepted for compatibility and not used.
        max_unique_ids_per_partition: accepted for compatibility and not used.
        vocabulary: a `DynamicVocabulary`: indices are keys, any 64-bit integers, of which
            `vocabulary_size` can have a row at the same time. Needs an `optimizer`. Default:
            indices are the numbers of rows.

    Raises:
        ValueError: an argument is out of range, there is no such combiner, placement or optimizer,
            or the optimizer does what only a model's can do.
        TypeError: `optimizer` or `vocabulary` is something else.

    Example:
        >>> users = tf_byteps.keras.layers.TableConfig("users", 1_000_000, 64)
    """

    name: str
    vocabulary_size: int
    embedding_dim: int
    initializer: Any = dataclasses.field(default_factory=_initializer)
    optimizer: Any = None
    combiner: str | None = "mean"
    placement: str = "auto"
    max_ids_per_partition: int = 256
    max_unique_ids_per_partition: int = 256
    vocabulary: DynamicVocabulary | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or "/" in self.name:
            raise ValueError(
                f"the name of a table must be a string without '/', got {self.name!r}: it is the "
                "table's name in files"
            )
        for what in ("vocabulary_size", "embedding_dim"):
            value = getattr(self, what)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"{what} of the table {self.name!r} must be an integer of at least 1, got "
                    f"{value!r}"
                )
        if self.combiner not in COMBINERS:
            raise ValueError(
                f"combiner of the table {self.name!r} must be one of {COMBINERS}, got "
                f"{self.combiner!r}"
            )
        if self.placement not in _PLACEMENTS:
            raise ValueError(
                f"placement of the table {self.name!r} must be one of {_PLACEMENTS}, got "
                f"{self.placement!r}: tables are in the memory of the workers' devices, or of the "
                "servers"
            )
        self.initializer = keras.initializers.get(self.initializer)
        self.optimizer = optimizers.checked(self.name, self.optimizer)
        if self.placement == "servers":
            optimizers.check_on_servers(self.name, self.optimizer)
        if self.vocabulary is not None:
            self._check_vocabulary()

    def _check_vocabulary(self) -> None:
        if not isinstance(self.vocabulary, DynamicVocabulary):
            raise TypeError(
                f"vocabulary of the table {self.name!r} must be a "
                "tf_byteps.keras.layers.DynamicVocabulary, got "
                f"{type(self.vocabulary).__name__}"
            )
        if self.placement == "servers":
            raise ValueError(
                f"the table {self.name!r} has placement='servers' and a vocabulary, which only "
                "tables on workers have: leave one of both out"
            )
        if self.optimizer is None:
            raise ValueError(
                f"the table {self.name!r} has a vocabulary and no optimizer: give its TableConfig "
                "one, such as optimizer='adagrad', because a row that gets another key begins anew "
                "with what the optimizer keeps for it"
            )
        distributions.of(self.name, self.initializer, self.embedding_dim, "float32", "a vocabulary")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and numbers in a row."""
        return self.vocabulary_size, self.embedding_dim

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal table."""
        return {
            "name": self.name,
            "vocabulary_size": self.vocabulary_size,
            "embedding_dim": self.embedding_dim,
            "initializer": keras.saving.serialize_keras_object(self.initializer),
            "optimizer": keras.saving.serialize_keras_object(self.optimizer),
            "combiner": self.combiner,
            "placement": self.placement,
            "vocabulary": None if self.vocabulary is None else self.vocabulary.get_config(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TableConfig:
        """The table that `get_config` has described."""
        made = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("initializer", "optimizer")
            if config.get(name) is not None
        }
        if config.get("vocabulary") is not None:
            made["vocabulary"] = DynamicVocabulary(**config["vocabulary"])
        return cls(**{**config, **made})


@dataclasses.dataclass(eq=False)
class FeatureConfig:
    """A feature that looks up in a table, for `DistributedEmbedding`.

    Args:
        name: of the feature.
        table: a `TableConfig`. Several features may have the same.
        input_shape: accepted for compatibility and not used: the shapes are those of the input.
        output_shape: accepted for compatibility and not used: it follows from the input and the
            table's combiner.

    Raises:
        TypeError: `table` is no `TableConfig`.

    Example:
        >>> layers = tf_byteps.keras.layers
        >>> user = layers.FeatureConfig("user", layers.TableConfig("users", 1_000_000, 64))
    """

    name: str
    table: TableConfig
    input_shape: Sequence[int | None] | None = None
    output_shape: Sequence[int | None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.table, TableConfig):
            raise TypeError(
                f"table of the feature {self.name!r} must be a "
                f"tf_byteps.keras.layers.TableConfig, got {type(self.table).__name__}"
            )

    def get_config(self) -> dict[str, Any]:
        """The arguments that make an equal feature, with an equal table."""
        return {
            "name": self.name,
            "table": self.table.get_config(),
            "input_shape": self.input_shape,
            "output_shape": self.output_shape,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FeatureConfig:
        """The feature that `get_config` has described."""
        return cls(**{**config, "table": TableConfig.from_config(config["table"])})
