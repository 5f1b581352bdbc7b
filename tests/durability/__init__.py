"""Proofs that nothing acknowledged is lost: traces of system calls, power cuts, SIGKILL, faults of the disk."""
