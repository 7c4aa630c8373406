"""Eq. 2 itself: rows and columns of the communication matrix alike."""
