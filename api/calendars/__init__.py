"""Calendars of clusters, and reservations in them: proposed, confirmed, canceled."""
