"""From a declared model to the matrix form, and values back to the declaration."""
