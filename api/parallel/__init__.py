"""3D-parallel plans for one job: asked for, answered and drawn at once, never stored."""
