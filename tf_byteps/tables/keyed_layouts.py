"""How what tables with vocabularies have is spread over the workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

from tf_byteps.tables.configs import TableConfig
from tf_byteps.tables.layout import BlockLayout
from tf_byteps.tables.vocabularies import DynamicVocabulary, cut


def layout_of(tables: Sequence[TableConfig], workers: int, rank: int) -> BlockLayout:
    """How the rows of tables with vocabularies are spread over the workers."""
    cuts = [cut(table.vocabulary_size) for table in tables]
    rows = tuple(
        (table.name, blocks * size) for table, (blocks, size) in zip(tables, cuts, strict=True)
    )
    return BlockLayout(rows, workers, rank, tuple(blocks for blocks, _ in cuts))


def candidate_layout(tables: Sequence[TableConfig], layout: BlockLayout) -> BlockLayout:
    """How lines for keys without a row are spread: as many as rows, where keys are counted."""
    lines = tuple(
        (name, rows if cast("DynamicVocabulary", table.vocabulary).min_count > 1 else 0)
        for table, (name, rows) in zip(tables, layout.tables, strict=True)
    )
    return dataclasses.replace(layout, tables=lines)
