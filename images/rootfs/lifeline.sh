#!/usr/bin/env bash
# Runs one step so that it cannot outlive the builder: lifeline.sh COMMAND...
#
# The builder holds the other end of standard input. When it dies, even by SIGKILL, the reader below sees the end
# of the stream and kills the group that the step and all it starts belong to; with the first process of a process
# namespace everything in it dies. The reader is nobody's child (two forks), and the command's status stays its own.
exec 3<&0 </dev/null
( { read -r -u 3 _ || true; kill -KILL 0; } & )
exec "$@" 3<&-
