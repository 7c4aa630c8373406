"""Who may ask: tokens of clients, and what they asked for."""
