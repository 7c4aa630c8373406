"""Deployments of the service: what is chosen, checked, started and looked after."""
