"""The features of a layer, as the program has put them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tf_byteps.tables import optimizers
from tf_byteps.tables.configs import FeatureConfig, TableConfig

_PREPROCESSED = "byteps_preprocessed"


class Plan:
    """The features of a layer and their tables.

    Args:
        structure: a `FeatureConfig`, or lists and dicts of them.

    Attributes:
        features: all of them, in the order of `keras.tree.flatten`.
        tables: a dict of the tables' names and `TableConfig`s, in the order of their features.

    Raises:
        TypeError: something else is in the structure.
        ValueError: there is no feature, or two tables have one name.
    """

    def __init__(self, structure: Any) -> None:
        self._structure = structure
        self.features: list[FeatureConfig] = keras.tree.flatten(structure)
        for each in self.features:
            if not isinstance(each, FeatureConfig):
                raise TypeError(
                    "feature_configs must be a tf_byteps.keras.layers.FeatureConfig, or lists and "
                    f"dicts of them, got {type(each).__name__}"
                )
        if not self.features:
            raise ValueError("feature_configs is empty: give at least one FeatureConfig")
        self.tables = _tables_of(self.features)

    def groups(self) -> list[list[TableConfig]]:
        """The tables, in lists of those of one width that are updated alike."""
        found: dict[object, list[TableConfig]] = {}
        for table in self.tables.values():
            is_keyed = table.vocabulary is not None
            key = table.embedding_dim, optimizers.key(table.optimizer), is_keyed
            if table.placement == "servers":  # each is on the servers by its own name
                key = table.name
            found.setdefault(key, []).append(table)
        return list(found.values())

    def flat(self, values: Any, what: str) -> list[Any]:
        """The values of the features, which may be structures themselves, in their order.

        Args:
            values: of the structure of the features.
            what: they are, for the message.

        Raises:
            ValueError: they have another structure.
        """
        found: list[Any] = []
        try:
            keras.tree.map_structure_up_to(
                self._structure, lambda _, value: found.append(value), self._structure, values
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{what} of DistributedEmbedding must have the structure of feature_configs: "
                f"{error}"
            ) from None
        return found

    def preprocessed(self, inputs: object, weights: object) -> dict[str, Any]:
        """Inputs and weights in one structure, which `given` takes apart again.

        Raises:
            ValueError: they have another structure than the features.
        """
        self.flat(inputs, "inputs")
        if weights is None:
            return {_PREPROCESSED: {"inputs": inputs}}
        self.flat(weights, "weights")
        return {_PREPROCESSED: {"inputs": inputs, "weights": weights}}

    def given(self, inputs: object, weights: object) -> tuple[list[Any], list[Any]]:
        """The features' inputs, and their weights or `None`, in the features' order.

        Args:
            inputs: of the structure of the features, or what `preprocessed` has returned.
            weights: of the structure of the features, or `None`.

        Raises:
            ValueError: they have another structure.
        """
        if isinstance(inputs, Mapping) and _PREPROCESSED in inputs:
            both = inputs[_PREPROCESSED]
            inputs, weights = both["inputs"], both.get("weights")
        flat = self.flat(inputs, "inputs")
        return flat, [None] * len(flat) if weights is None else self.flat(weights, "weights")

    def packed(self, values: list[Any]) -> Any:
        """A value of each feature, in the structure of the features."""
        return keras.tree.pack_sequence_as(self._structure, values)

    def get_config(self) -> dict[str, Any]:
        """What `features_from` makes the features of."""
        tables = list(self.tables)
        return {
            "feature_configs": self.packed(list(range(len(self.features)))),
            "features": [
                {"name": each.name, "table": tables.index(each.table.name)}
                for each in self.features
            ],
            "tables": [table.get_config() for table in self.tables.values()],
        }


def features_from(config: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The structure of features that `Plan.get_config` has described, and the rest of a config."""
    others = dict(config)
    tables = [TableConfig.from_config(each) for each in others.pop("tables")]
    features = [
        FeatureConfig(each["name"], tables[each["table"]]) for each in others.pop("features")
    ]
    numbers = others.pop("feature_configs")
    return keras.tree.map_structure(lambda number: features[number], numbers), others


def _tables_of(features: Sequence[FeatureConfig]) -> dict[str, TableConfig]:
    """The tables of some features, each once, in the order of their first features.

    Raises:
        ValueError: two tables have one name, and are not the same.
    """
    found: dict[str, TableConfig] = {}
    for feature in features:
        table = feature.table
        known = found.setdefault(table.name, table)
        if known is not table:
            shapes = "" if known.shape == table.shape else f" ({known.shape} and {table.shape})"
            raise ValueError(
                f"two tables have the name {table.name!r}{shapes}: give all features that share a "
                "table the same TableConfig object, and other tables other names"
            )
    return found
