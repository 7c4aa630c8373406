"""How requests are read: large ones by processes of their own, so that the one that serves is always free."""
