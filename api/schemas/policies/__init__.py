"""What clients say to each policy: a document a file, all listed in `api.schemas.parameters`."""
