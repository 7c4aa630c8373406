"""The command line: the same planning as the service, without a server."""
