"""Build of the root file system without Docker, as root or as a user with subordinate ids."""
