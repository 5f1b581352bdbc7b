"""Tools that a model calls: what each takes and does, and the catalogue of those that this deployment can serve."""
