"""A network of its own for the tests of egress: squid, web servers, a resolver and canaries in namespaces."""
