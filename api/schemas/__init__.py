"""The documents of the HTTP interface: pydantic models, unknown fields refused."""
