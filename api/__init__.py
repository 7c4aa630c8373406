"""HTTP, CLI, store, configuration: where everything meets."""
