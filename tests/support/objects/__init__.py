"""A server of the S3 protocol over a loopback socket, which checks every signature; and servers that misbehave."""
