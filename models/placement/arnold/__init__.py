"""Arnold: placement of one pre-training job over minipods."""
