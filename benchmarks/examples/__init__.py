"""The packaged examples, written anew."""
