"""Measures tf_byteps against the limits of the wire, the machine, and its peers; see README.md."""
