"""Which schema a database has, and how an older one becomes today's.

Alembic has the migrations (`migrations/versions/`); it is loaded where one is needed only.
"""

import logging
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select, text

from api.common.errors import StoreError
from api.store.tables import METADATA

HEAD = "0002"
# What wrote databases before there were migrations had this schema.
_FIRST = "0001"
_APPLICATION_ID = 0x53544F57  # "STOW" in the header of the file
# Stowplans that know no migrations look at it, and refuse what is above 1.
_USER_VERSION = 2
# As Alembic makes it.
_VERSIONS = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_logger = logging.getLogger("stowplan.api.store.schema")


def bring_up_to_date(connection: Connection, name: str) -> bool:
    """Make the tables of a new database, or those of an older one as they are today; whether it was older.

    Parameters
    ----------
    connection
        Its transaction has begun: all of it is done, or nothing.

    Raises
    ------
    StoreError
        When the database is not ours, was written by a newer version, or holds what cannot be read.
    """
    revision = revision_of(connection, name)
    if revision is not None and revision > HEAD:
        raise StoreError(
            f"{name} has schema {revision}, written by a newer Stowplan; this one knows {HEAD}. Update Stowplan or "
            "name another file"
        )
    if revision is None:
        METADATA.create_all(connection)
        _VERSIONS.create(connection)
        connection.execute(insert(_VERSIONS).values(version_num=HEAD))
    elif revision < HEAD:
        _logger.info("%s is brought from schema %s to %s", name, revision, HEAD)
        try:
            _migrate(connection, revision)
        except (LookupError, ValueError) as error:
            raise StoreError(
                f"{name} cannot be brought from schema {revision} to {HEAD}, and was left as it is: something in it "
                f"cannot be read: {error}"
            ) from error
    connection.execute(text(f"PRAGMA application_id = {_APPLICATION_ID}"))
    connection.execute(text(f"PRAGMA user_version = {_USER_VERSION}"))
    return revision is not None and revision < HEAD


def revision_of(connection: Connection, name: str) -> str | None:
    """Schema of a database of ours, None for an empty one; StoreError when it is another program's."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if connection.scalar(text("PRAGMA application_id")) != _APPLICATION_ID:
        raise StoreError(f"{name} belongs to another program; name another file")
    if _VERSIONS.name not in tables:
        return _FIRST
    return connection.scalar(select(_VERSIONS.c.version_num))


def _migrate(connection: Connection, revision: str) -> None:
    # Not at every start.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    if revision == _FIRST:
        command.stamp(config, _FIRST)
    command.upgrade(config, HEAD)
