"""Gavel: shares of time on GPU types by linear programs, handed out in rounds."""
