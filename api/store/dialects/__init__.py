"""What only one kind of database has: SQLite in a file or in memory, and PostgreSQL on a server."""
