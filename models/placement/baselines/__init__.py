"""Placements that Arnold is compared with (section 7.1): pure functions from an instance to minipods of cells."""
