"""Which 3D plan fits these GPUs."""
