"""What programs say of the reduction of gradients, whatever framework computes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from tf_byteps.exchange import reduce_op
from tf_byteps.exchange.compression import Compression
from tf_byteps.exchange.compression_choice import CompressionChoice, resolve_choice
from tf_byteps.exchange.names import in_scope
from tf_byteps.exchange.process_sets import ProcessSet, scope_of
from tf_byteps.exchange.reduce_op import Average, ReduceOp, Sum

if TYPE_CHECKING:
    import keras

    LocalLayers: TypeAlias = keras.layers.Layer | Iterable[keras.layers.Layer] | None


class GradientArguments:
    """How a tape or an optimizer reduces gradients: checked arguments that both have.

    Args:
        op: `Average` or `Sum`, or its name.
        compression: a member of `Compression` or its name, or a function of a variable that
            returns one.
        sparse_as_dense: whether `tf.IndexedSlices` become dense tensors first.
        gradient_predivide_factor: a positive number f: gradients are divided by f before the
            exchange and multiplied by f after it.
        scale_local_gradients: whether gradients that stay local are divided by the number of
            workers when the others are averaged.
        scope: a prefix of the exchanges' names.
        backup_workers: how many workers an average need not wait for; `None`: as configured.
        merge_repeated_rows: whether rows of `tf.IndexedSlices` with one index become one row.
        process_set: the workers that reduce them, a `ProcessSet`; `None`: all.

    Raises:
        ValueError: an argument cannot be used.
    """

    def __init__(
        self,
        op: ReduceOp | str = Average,
        compression: CompressionChoice = Compression.none,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        scale_local_gradients: bool = True,
        scope: str = "",
        backup_workers: int | None = None,
        merge_repeated_rows: bool = True,
        process_set: ProcessSet | None = None,
    ) -> None:
        scope_of(process_set)  # which is refused here, rather than in the first step
        op = reduce_op.resolve(None, op)
        if op not in (Average, Sum):
            raise ValueError(f"gradients are reduced with 'average' or 'sum', not with {str(op)!r}")
        if not gradient_predivide_factor > 0:
            raise ValueError(
                f"gradient_predivide_factor must be above 0, got {gradient_predivide_factor}"
            )
        if gradient_predivide_factor != 1 and op != Average:
            raise ValueError("gradient_predivide_factor needs op=Average: it splits the division")
        if backup_workers and op != Average:
            raise ValueError("backup_workers needs op=Average: the sum of some is not that of all")
        self.op = op
        self.backup_workers = backup_workers if op == Average else 0
        self.compression = resolve_choice(compression)
        self.sparse_as_dense = sparse_as_dense
        self.merge_repeated_rows = merge_repeated_rows
        self.predivide_factor = gradient_predivide_factor
        self.scale_local_gradients = scale_local_gradients
        self.process_set = process_set
        self._scope = scope
        self._local: list[Any] = []
        self._local_layers: list[keras.layers.Layer] = []
        #: Whether this is what `BytePSStrategy` does as well: nothing but averages.
        self.is_plain = (
            op == Average
            and self.compression is Compression.none
            and not sparse_as_dense
            and merge_repeated_rows
            and gradient_predivide_factor == 1
            and backup_workers is None
            and process_set is None
        )

    @property
    def workers(self) -> str:
        """`process_sets.scope_of` those who reduce the gradients."""
        return scope_of(self.process_set)

    @property
    def scope(self) -> str:
        """A prefix of the exchanges' names."""
        return in_scope(self.workers, self._scope) if self._scope else self.workers

    @property
    def has_local(self) -> bool:
        """Whether some variables keep their local gradients."""
        return bool(self._local or self._local_layers)

    def register_local(self, variable: Any) -> None:
        """Leaves a variable's gradient as this worker computed it."""
        if not self.is_local(variable):
            self._local.append(variable)

    def register_local_layers(self, layers: LocalLayers) -> None:
        """Leaves the gradients of all variables of layers as this worker computed them.

        Args:
            layers: a `keras.layers.Layer`, or some of them, built or not; `None` if there are none.

        Raises:
            TypeError: something else is among them.
        """
        if layers is None:
            return
        import keras  # with what the layers are of

        is_one = isinstance(layers, keras.layers.Layer) or not isinstance(layers, Iterable)
        given = [layers] if is_one else list(layers)
        for layer in given:
            if not isinstance(layer, keras.layers.Layer):
                raise TypeError(
                    "local_layers must be a keras.layers.Layer, or a list of them, got "
                    f"{type(layer).__name__}: register single variables with register_local_var "
                    "of an optimizer, or register_local_source of a tape"
                )
        self._local_layers += given

    def is_local(self, variable: Any) -> bool:
        """Whether a variable keeps its local gradients."""
        # A layer may have been built since it was registered.
        of_layers = (each for layer in self._local_layers for each in layer.variables)
        return any(
            self._identity(variable) is self._identity(other)
            for other in itertools.chain(self._local, of_layers)
        )

    def _identity(self, variable: Any) -> Any:
        """What all objects that stand for one variable have in common."""
        return variable
