"""The HTTP interface: reading requests, who may ask, problems, routers."""
