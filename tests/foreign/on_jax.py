"""Which programs run with Keras on JAX, and which show something else there than on TensorFlow."""

from tests.foreign.table import REPEATED

_STEP = "own `train_step` of TensorFlow"
_LOOP = "own loop of TensorFlow"
_OPERATIONS = "TensorFlow's operations in a loss, metric or optimizer"
_REFUSED = "refused: `merge_repeated_rows=False`"

# Reason -> names. Those of TensorFlow fail in one process, too.
_WITHOUT = {
    _STEP: """
        siamese_triplets simclr_gathered simclr_gathered_uneven simclr moco_gathered moco moco_own
        vae vae_drawing dcgan dcgan_drawing wgan_gp diffusion masked_language_model
        own_step_mean own_step_function own_step_object own_step_compute_loss own_step_regularized
        tracked_step accumulating_by_hand distiller
        processed_skipping processed_skipping_compiled processed_every_second processed_reduced
        processed_reduced_eager processed_clipped processed_clipped_compiled
        processed_clipped_eager processed_logged processed_signs processed_by_hand
        processed_by_hand_compiled processed_sharpness_aware processed_sharpness_aware_eager
        processed_surgery processed_surgery_compiled processed_meta processed_gated
        processed_divided processed_nested processed_adam processed_accumulating
        guided_mean_step guided_step guided_regularized_step
        """,
    _LOOP: """
        scratch_loop scratch_loop_function scratch_loop_clipped scratch_loop_by_hand
        guided_loop guided_epoch
        """,
    _OPERATIONS: """
        loss_of_a_scalar loss_of_a_vector loss_of_a_scalar_weighted loss_of_a_sum accumulating
        two_towers_in_batch centralized centralized_accumulating centralized_loss_scale
        python_metric
        """,
    _REFUSED: """
        text_transformer_adam_unmerged recommender_unmerged two_towers_adagrad_unmerged
        """,
    "refused by Keras": "batch_normalization_synchronized",
    "Keras fails in one process": "own_compute_loss endpoint_layer",
}
WITHOUT = {name: reason for reason, names in _WITHOUT.items() for name in names.split()}
_DIFFERS = {
    "mixed_precision": "scaled gradients of own rows overflow earlier, and more steps are skipped"
}
REFUSED = [name for name, reason in WITHOUT.items() if reason == _REFUSED]


def differs(name, program):
    """Why a `Program` shows something else on JAX than one process on JAX; "" if it does not.

    Gradients of embeddings are dense there: one process sums them up before it squares them.
    """
    return _DIFFERS.get(name, "" if program.differs == REPEATED else program.differs)


def column(name, program):
    """What docs/strategy_tests.md says of a program on JAX."""
    if name in WITHOUT:
        return f"no: {WITHOUT[name]}"
    why = differs(name, program)
    if why == program.differs:
        return "the same"
    return f"differs: {why}" if why else "equal"
