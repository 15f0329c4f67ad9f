"""What the workers of test_skewed.py do."""

import logging
import os

import tensorflow as tf

import tf_byteps


def _files(folder):
    names = [os.path.join(folder, f"{number}.txt") for number in range(4)]
    if tf_byteps.rank() == 0:
        for name in names:
            with open(name, "w") as file:
                file.write("1\n2\n3\n4\n")
    tf_byteps.push_pull(tf.constant(0.0), name="files are there")
    return names


def warnings_of(folder):
    """The warnings of each dataset, by its name, and the rows that this worker gets of it."""
    tf_byteps.init()
    names = _files(folder)
    plain = tf.data.TextLineDataset(names)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    listed = tf.data.Dataset.list_files(names, seed=1)
    datasets = {
        "sorted": (plain.batch(4).with_options(options), 2),
        "shuffled rows": (plain.shuffle(16, seed=1).batch(4).with_options(options), 2),
        "shuffled files": (
            listed.interleave(tf.data.TextLineDataset).batch(4).with_options(options),
            2,
        ),
        "parts of each batch": (plain.batch(4), 2),
        "rounds in each step": (plain.batch(4).with_options(options), 1),
        "synchronous": (plain.batch(4).with_options(options), None),
    }
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("tf_byteps").addHandler(handler)
    found = {}
    for kind, (dataset, local_steps) in datasets.items():
        said.clear()
        strategy = tf_byteps.BytePSStrategy(local_steps=local_steps)
        rows = sum(len(batch) for batch in strategy.experimental_distribute_dataset(dataset))
        found[kind] = ([each for each in said if "files of its own" in each], rows)
    logging.getLogger("tf_byteps").removeHandler(handler)
    return found
