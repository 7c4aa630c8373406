"""What every room of the service may use: settings, errors, metrics, events, words."""
