"""Which rows of the input are this worker's."""
