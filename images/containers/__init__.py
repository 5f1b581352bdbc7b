"""Container images of the sandbox and of the runner, made with the command line of Docker."""
