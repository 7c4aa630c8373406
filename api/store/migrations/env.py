"""What Alembic runs: migrations on a connection whose transaction has begun."""

from alembic import context

from api.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
