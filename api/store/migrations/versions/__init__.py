"""One file a migration; none is ever changed after its release."""
