"""Several weighted tiers."""
