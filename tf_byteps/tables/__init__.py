"""Embedding tables of which each worker, or each server, has some rows: `tf_byteps.keras.layers`.

| file | what |
|---|---|
| `configs` | what a program says of a table, and of a feature that looks up in it |
| `plan` | the features of a layer, and their tables |
| `layout` | which worker has which rows, and which variables are such rows |
| `features` | rows for the features of a layer |
| `lookup` | rows for this worker's indices, from the workers that have them |
| `gradients` | gradients of rows, to the workers that have the rows |
| `initial_rows` | initial values, the same for any number of workers |
| `distributions` | initializers whose values for a row can be made without the other rows |
| `vocabularies` | what a program says of a table whose rows are given to keys |
| `key_slots`, `vocabulary` | which key has which row, on one worker, without TensorFlow |
| `keyed`, `keyed_layouts`, `keyed_files` | such tables in TensorFlow, and in files |
| `server_table` | a table whose rows are on the servers, as a worker sees it |
| `server_blocks` | which servers have its blocks, and what those are asked |
| `server_tables` | several of them at once |
| `on_servers` | such tables in TensorFlow's programs |
| `optimizers` | what may be a table's own optimizer |
| `combining` | one row of a sample from several |
| `saving` | whole tables, in files that any number of workers can load |
"""
