"""Which schema a database has, and how an older one becomes today's.

Alembic has the migrations (`migrations/versions/`); it is loaded where one is needed only.
"""

import logging
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from api.common.errors import StoreError
from api.store.dialects.base import Dialect
from api.store.tables import METADATA

HEAD = "0005"
# What wrote databases before there were migrations had this schema.
_FIRST = "0001"
# As Alembic makes it.
_VERSIONS = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_logger = logging.getLogger("stowplan.api.store.schema")


def bring_up_to_date(connection: Connection, dialect: Dialect) -> bool:
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
    name = dialect.name
    revision = _revision(connection, dialect)
    if revision is not None and revision > HEAD:
        raise StoreError(
            f"{name} has schema {revision}, written by a newer Stowplan; this one knows {HEAD}. Update Stowplan or "
            "name another database"
        )
    if revision is None or revision < HEAD:
        dialect.refuse_others(connection)
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
    dialect.mark(connection)
    return revision is not None and revision < HEAD


def _revision(connection: Connection, dialect: Dialect) -> str | None:
    """Schema of a database of ours, None for an empty one; StoreError when it is another program's."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if not dialect.is_ours(connection):
        raise StoreError(f"{dialect.name} belongs to another program; name another one")
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
