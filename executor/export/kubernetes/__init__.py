"""A planned job as controllers of Kubernetes run it: manifests, and how their pods get to their hosts."""
