"""Compression by operations of TensorFlow, beside the codecs of the engine."""
