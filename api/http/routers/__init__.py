"""The paths of the HTTP interface. Routers read the request and write the answer; services do the work."""
