"""A method, a stream of batches and an optimiser become a checkpoint."""
