"""The system call profile of sandboxes on Docker, written from the filter of the bubblewrap backend."""
