"""A Kubernetes cluster that is connected: read and watched through its API, changed by patches."""
