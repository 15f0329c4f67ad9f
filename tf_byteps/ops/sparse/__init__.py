"""Exchanges of `tf.IndexedSlices`: rows, their sums, and their codecs."""
