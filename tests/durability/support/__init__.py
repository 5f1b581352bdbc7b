"""What the proofs of durability share; see ``trace`` for the beginning."""
