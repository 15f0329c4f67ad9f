"""Parameters of the functions of Keras and TensorFlow that tf_byteps changes.

Each with those of all tested versions; written by tools/record_signatures.py.
"""

SIGNATURES: dict[str, tuple[str, ...]] = {
    "Adagrad.update_step": ("(self, gradient, variable, learning_rate)",),
    "ArrayDataAdapter.get_tf_dataset": ("(self)",),
    "AtomicFunction.call_flat": ("(self, *args)",),
    "BackupAndRestore._save_model": ("(self)",),
    "BackupAndRestore.on_train_begin": ("(self, logs=None)",),
    "BackupAndRestore.on_train_end": ("(self, logs=None)",),
    "BaseOptimizer._clip_gradients": ("(self, grads)",),
    "BaseOptimizer._get_current_learning_rate": ("(self)",),
    "BaseOptimizer._overwrite_variable_with_gradient": ("(self, variable)",),
    "BaseOptimizer._overwrite_variables_directly_with_gradients": ("(self, grads, vars)",),
    "BaseOptimizer.add_variable": (
        "(self, shape, initializer=None, dtype=None, aggregation=None, layout=None, name=None)",
    ),
    "BaseOptimizer.apply": ("(self, grads, trainable_variables=None)",),
    "BaseOptimizer.load_own_variables": ("(self, store)",),
    "BaseOptimizer.save_own_variables": ("(self, store)",),
    "BaseOptimizer.stateless_apply": ("(self, optimizer_variables, grads, trainable_variables)",),
    "CSVLogger.on_epoch_end": ("(self, epoch, logs=None)",),
    "CSVLogger.on_train_begin": ("(self, logs=None)",),
    "CallbackList.__init__": (
        "(self, callbacks=None, add_history=None, add_progbar=None, model=None, **params)",
    ),
    "CallbackList.on_train_batch_begin": ("(self, batch, logs=None)",),
    "CallbackList.on_train_batch_end": ("(self, batch, logs=None)",),
    "ConcreteFunction._trackable_children": ("(self, save_type=None, **kwargs)",),
    "Dense._float8_call": ("(self, inputs, training=None)",),
    "EinsumDense._float8_call": ("(self, inputs, training=None)",),
    "Embedding.call": ("(self, inputs)",),
    "GradientTape.__enter__": ("(self)",),
    "GradientTape.batch_jacobian": (
        "(self, target, source, unconnected_gradients=None, "
        "parallel_iterations=None, experimental_use_pfor=None)",
    ),
    "GradientTape.gradient": (
        "(self, target, sources, output_gradients=None, unconnected_gradients=None)",
    ),
    "GradientTape.jacobian": (
        "(self, target, sources, unconnected_gradients=None, "
        "parallel_iterations=None, experimental_use_pfor=None)",
    ),
    "JAXEpochIterator._enumerate_iterator": ("(self)",),
    "JAXEpochIterator._get_iterator": ("(self)",),
    "JAXTrainer.__init__": ("(self)",),
    "JAXTrainer._get_metrics_result_or_logs": ("(self, logs)",),
    "JAXTrainer._make_function": ("(self, step_function, concatenate_outputs=None)",),
    "JAXTrainer._symbolic_build": ("(self, iterator=None, data_batch=None)",),
    "JAXTrainer.evaluate": (
        "(self, x=None, y=None, batch_size=None, verbose=None, "
        "sample_weight=None, steps=None, callbacks=None, return_dict=None, "
        "**kwargs)",
    ),
    "JAXTrainer.fit": (
        "(self, x=None, y=None, batch_size=None, epochs=None, verbose=None, "
        "callbacks=None, validation_split=None, validation_data=None, "
        "shuffle=None, class_weight=None, sample_weight=None, initial_epoch=None, "
        "steps_per_epoch=None, validation_steps=None, validation_batch_size=None, "
        "validation_freq=None)",
    ),
    "JAXTrainer.jax_state_sync": ("(self)",),
    "JAXTrainer.make_predict_function": ("(self, force=None)",),
    "JAXTrainer.make_test_function": ("(self, force=None)",),
    "JAXTrainer.make_train_function": ("(self, force=None)",),
    "JAXTrainer.predict": ("(self, x, batch_size=None, verbose=None, steps=None, callbacks=None)",),
    "JAXTrainer.test_on_batch": ("(self, x, y=None, sample_weight=None, return_dict=None)",),
    "JAXTrainer.train_on_batch": (
        "(self, x, y=None, sample_weight=None, class_weight=None, return_dict=None)",
    ),
    "LossScaleOptimizer.__init__": (
        "(self, inner_optimizer, initial_scale=None, "
        "dynamic_growth_steps=None, name=None, **kwargs)",
    ),
    "LossScaleOptimizer.apply": ("(self, grads, trainable_variables=None)",),
    "LossScaleOptimizer.check_finite": ("(self, grads)",),
    "LossScaleOptimizer.stateless_apply": (
        "(self, optimizer_variables, grads, trainable_variables)",
    ),
    "Mean.update_state": ("(self, values, sample_weight=None)",),
    "Model.export": (
        "(self, filepath, format=None, verbose=None, input_signature=None, **kwargs)",
    ),
    "ModelCheckpoint._save_model": ("(self, epoch, batch, logs)",),
    "MultiDeviceSaver.save": ("(self, file_prefix, options=None)",),
    "OrbaxCheckpoint._save_checkpoint": ("(self, step, logs=None)",),
    "OrbaxCheckpoint._should_save_on_batch": ("(self, batch)",),
    "OrbaxCheckpoint.on_train_batch_end": ("(self, batch, logs=None)",),
    "OwnedIterator._next_internal": ("(self)",),
    "OwnedIterator.get_next_as_optional": ("(self)",),
    "RemoteMonitor.on_epoch_end": ("(self, epoch, logs=None)",),
    "SeedGenerator.next": ("(self, ordered=None)",),
    "StatelessScope.__init__": (
        "(self, state_mapping=None, collect_losses=None, initialize_variables=None)",
    ),
    "TFOptimizer._all_reduce_sum_gradients": ("(self, grads_and_vars)",),
    "TFOptimizer.add_variable_from_reference": (
        "(self, reference_variable, name=None, initializer=None)",
    ),
    "TensorBoard._log_embeddings": ("(self, epoch)",),
    "TensorBoard.set_model": ("(self, model)",),
    "TensorFlowTrainer._get_metrics_result_or_logs": ("(self, logs)",),
    "TensorFlowTrainer._make_function": ("(self, step_function)",),
    "TensorFlowTrainer._maybe_symbolic_build": ("(self, iterator=None, data_batch=None)",),
    "TensorFlowTrainer.evaluate": (
        "(self, x=None, y=None, batch_size=None, verbose=None, "
        "sample_weight=None, steps=None, callbacks=None, "
        "return_dict=None, **kwargs)",
    ),
    "TensorFlowTrainer.fit": (
        "(self, x=None, y=None, batch_size=None, epochs=None, verbose=None, "
        "callbacks=None, validation_split=None, validation_data=None, "
        "shuffle=None, class_weight=None, sample_weight=None, "
        "initial_epoch=None, steps_per_epoch=None, validation_steps=None, "
        "validation_batch_size=None, validation_freq=None)",
    ),
    "TensorFlowTrainer.make_predict_function": ("(self, force=None)",),
    "TensorFlowTrainer.make_test_function": ("(self, force=None)",),
    "TensorFlowTrainer.make_train_function": ("(self, force=None)",),
    "TensorFlowTrainer.predict": (
        "(self, x, batch_size=None, verbose=None, steps=None, callbacks=None)",
    ),
    "TensorFlowTrainer.predict_on_batch": ("(self, x)",),
    "TensorFlowTrainer.train_on_batch": (
        "(self, x, y=None, sample_weight=None, class_weight=None, return_dict=None)",
    ),
    "TrackableSaver.restore": ("(self, save_path, options=None)",),
    "Trainer._resolve_auto_jit_compile": ("(self)",),
    "Trainer.compile": (
        "(self, optimizer=None, loss=None, loss_weights=None, metrics=None, "
        "weighted_metrics=None, run_eagerly=None, steps_per_execution=None, "
        "jit_compile=None, auto_scale_loss=None)",
    ),
    "Variable._direct_assign": ("(self, value)",),
    "Variable._initialize": ("(self, value)",),
    "checkpoint.checkpoint_management._delete_file_if_exists": ("(filespec)",),
    "framework.random_seed.get_seed": ("(op_seed)",),
    "losses.loss.reduce_weighted_values": (
        "(values, sample_weight=None, mask=None, reduction=None, dtype=None)",
    ),
    "losses.loss.scale_loss_for_distribution": ("(value)",),
    "losses.loss.unscale_loss_for_distribution": ("(value)",),
    "ops.cond.cond": (
        "(pred, true_fn=None, false_fn=None, strict=None, name=None, fn1=None, fn2=None)",
    ),
    "ops.save_op._save": (
        "(input_dataset, path, compression=None, shard_func=None, checkpoint_args=None)",
    ),
    "ops.while_loop.while_loop": (
        "(cond, body, loop_vars, shape_invariants=None, "
        "parallel_iterations=None, back_prop=None, swap_memory=None, "
        "name=None, maximum_iterations=None, "
        "return_same_structure=None)",
    ),
    "polymorphic_function.function_context.make_function_context": ("(scope_type=None)",),
    "saved_model.load.load_partial": ("(export_dir, filters, tags=None, options=None)",),
    "saved_model.save.save_and_return_nodes": (
        "(obj, export_dir, signatures=None, options=None, experimental_skip_checkpoint=None)",
    ),
    "saving.legacy_h5_format.save_model_to_hdf5": (
        "(model, filepath, overwrite=None, include_optimizer=None)",
    ),
    "saving.saving_lib.save_model": ("(model, filepath, weights_format=None, zipped=None)",),
    "saving.saving_lib.save_weights_only": (
        "(model, filepath, max_shard_size=None, objects_to_skip=None)",
    ),
    "tensorflow.nn.dot_product_attention": (
        "(query, key, value, bias=None, mask=None, "
        "scale=None, is_causal=None, flash_attention=None, "
        "attn_logits_soft_cap=None)",
    ),
    "util.random_seed.get_seed": ("(seed)",),
    "v2.nn.compute_average_loss": (
        "(per_example_loss, sample_weight=None, global_batch_size=None)",
    ),
    "v2.nn.scale_regularization_loss": ("(regularization_loss)",),
}
