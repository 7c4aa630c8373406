"""All tables of the database.

A change here needs a migration (`api/store/migrations/versions/`); a test compares what they lead to with this.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from api.schemas.metrics import StepRecordDoc
from api.store.compressed import CompressedText

METADATA = MetaData()
# Only of INTEGER does SQLite make numbers; its integers have 64 bits whatever they are called.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")
# Whose order clients see: by code points, as SQLite has it, whatever the language of the database.
_ORDERED = String().with_variant(String(collation="C"), "postgresql")
# Texts of snapshots and clusters, compressed: each is there once, and as long as something has it.
BODIES = Table(
    "bodies",
    METADATA,
    Column("hash", String, primary_key=True),
    Column("num_bytes", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
PLANS = Table(
    "plans",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("policy", String, nullable=False),
    Column("status", String, nullable=False, index=True),
    Column("queued_at_s", Float, nullable=False),
    Column("building_at_s", Float),
    Column("solving_at_s", Float),
    Column("finished_at_s", Float, index=True),
    Column("version", String, nullable=False),
    # Of the request that is stored: all fields but the snapshot, and the body of that.
    Column("request", Text, nullable=False),
    Column("snapshot_hash", String, nullable=False, index=True),
    Column("input_hash", String, nullable=False),
    Column("options", Text, nullable=False),
    Column("idempotency_key", String, unique=True),
    Column("objective", Float),
    Column("bound", Float),
    Column("relative_gap", Float),
    Column("outcome", CompressedText),
    Column("timings", Text, nullable=False),
    Column("failure", Text),
    Column("events", CompressedText),
    sqlite_autoincrement=True,
)
# What was asked for under a key where it is other than what is stored, as measurements were filled in: the same key
# with the same request gives the same plan.
POSTED = Table(
    "posted_plans",
    METADATA,
    Column("plan_id", String, primary_key=True),
    Column("input_hash", String, nullable=False),
)
# Warnings about what was filled in, as JSON text.
NOTES = Table(
    "noted_plans",
    METADATA,
    Column("plan_id", String, primary_key=True),
    Column("notes", Text, nullable=False),
)
# What is not final, and which service has it: a plan, a comparison, replays, a forecaster (`forecaster/NAME`), a
# deployment, which stays with services of its folder. Whoever takes it over raises `epoch`; an end is written together
# with the deletion of its row of this owner and epoch, so that there is one end. `owner` is empty where a service has
# ended in good order. Times are those of the database's clock.
LEASES = Table(
    "leases",
    METADATA,
    Column("resource_id", String, primary_key=True),
    Column("collection", String, nullable=False),
    Column("owner", String, nullable=False, index=True),
    Column("epoch", Integer, nullable=False),
    Column("since_s", Float, nullable=False),
    # Whether somebody has asked another service to end it.
    Column("wants_end", Boolean, nullable=False),
    # Of plans: who asked, its turn (the smallest is next), and whether a worker has begun with it under this owner.
    Column("client", String),
    Column("due_s", Float),
    Column("is_begun", Boolean, nullable=False),
    # How often it was taken up again after the process that had it was gone without a word, and in how many of those a
    # worker then began with it.
    Column("times_taken_up", Integer, nullable=False),
    Column("times_begun_again", Integer, nullable=False),
)
# Services on one database that live: each renews its row, by the clock of the database.
INSTANCES = Table(
    "instances",
    METADATA,
    Column("id", String, primary_key=True),
    Column("seen_at_s", Float, nullable=False),
    # Plans that it has room for, running and waiting.
    Column("room", Integer, nullable=False),
)
# What services have told of their deployments, which are processes and files: `place` is the folder that one lies in,
# `host` the machine of the service that told of it last. `holders`: the GPUs that it has, as JSON text; `document` is
# empty while it is being started. One that is not over has a lease.
DEPLOYMENTS = Table(
    "deployments",
    METADATA,
    Column("id", String, primary_key=True),
    Column("place", String, nullable=False, index=True),
    Column("host", String, nullable=False),
    Column("job_id", String, nullable=False, index=True),
    Column("started_at_s", Float, nullable=False),
    Column("told_at_s", Float, nullable=False),
    Column("holders", Text, nullable=False),
    Column("document", Text, nullable=False),
)
# When each client has all its requests at once again, by the clock of the database; see `api.store.rates`.
RATES = Table(
    "client_rates",
    METADATA,
    Column("client", String, primary_key=True),
    Column("full_at_s", Float, nullable=False),
)
# What plans that are not final have told on their way, where another service may be asked for it.
PLAN_EVENTS = Table(
    "plan_events",
    METADATA,
    Column("plan_id", String, primary_key=True),
    Column("number", _NUMBER, primary_key=True, autoincrement=False),
    Column("event", Text, nullable=False),
    sqlite_with_rowid=False,
)
# Nodes and their fabric, by the name of the cluster.
CLUSTERS = Table(
    "clusters",
    METADATA,
    Column("name", _ORDERED, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("updated_at_s", Float, nullable=False),
    Column("body_hash", String, nullable=False, index=True),
)
SNAPSHOTS = Table(
    "snapshots",
    METADATA,
    Column("id", String, primary_key=True),
    Column("created_at_s", Float, nullable=False),
    Column("body_hash", String, nullable=False, index=True),
)

COMPARISONS = Table(
    "comparisons",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("final", Boolean, nullable=False, index=True),
    Column("document", Text, nullable=False),
    sqlite_autoincrement=True,
)

KEYS = Table(
    "idempotency_keys",
    METADATA,
    Column("collection", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("input_hash", String, nullable=False),
    Column("resource_id", String, nullable=False, index=True),
    sqlite_with_rowid=False,
)

RUNS = Table(
    "measured_runs",
    METADATA,
    Column("id", _NUMBER, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("launch", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("num_records", BigInteger, nullable=False, default=0),
    Column("first_step", BigInteger),
    Column("since_s", Float),
    Column("until_s", Float),
    UniqueConstraint("job_id", "launch"),
)
# What the run says already is not kept with every record.
_IMPLIED = ("launch", "pipe", "data", "tensor", "num_micro_batches", "tokens", "small_batch", "large_batch")
# Nor what few records have, and nothing is computed of.
_KEPT = frozenset(StepRecordDoc.model_fields) - {*_IMPLIED, "validation_loss"}
NUMBERS = sorted(_KEPT - {"rank", "step", "host", "peak_memory_bytes", "started_at_s"})
STEPS = Table(
    "measured_steps",
    METADATA,
    # Steps of a launch lie together in their order, so that pages and the newest steps are read without a search.
    Column("run", _NUMBER, ForeignKey(RUNS.c.id), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("host", String, nullable=False),
    Column("peak_memory_bytes", BigInteger, nullable=False),
    Column("started_at_s", Float, nullable=False),
    *(Column(name, Float, nullable=False) for name in NUMBERS),
    sqlite_with_rowid=False,
)

# Of launches of programs of users: of a step one line, which knows nothing of its parts.
WHOLE_STEPS = Table(
    "measured_whole_steps",
    METADATA,
    Column("run", _NUMBER, ForeignKey(RUNS.c.id), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("started_at_s", Float, nullable=False),
    Column("step_s", Float, nullable=False),
    Column("loss", Float),
    sqlite_with_rowid=False,
)

FORECASTERS = Table(
    "forecasters",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("final", Boolean, nullable=False, index=True),
    Column("document", Text, nullable=False),
    # What was learned, and how well it did; null until it has succeeded.
    Column("record", Text),
    Column("report", Text),
    sqlite_autoincrement=True,
)

CALENDARS = Table(
    "calendars",
    METADATA,
    Column("name", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("updated_at_s", Float, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("entries", Text, nullable=False),
)
RESERVATIONS = Table(
    "reservations",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("calendar", String, nullable=False, index=True),
    Column("holds", Integer, nullable=False),
    Column("until_s", Float),
    Column("document", Text, nullable=False),
    sqlite_autoincrement=True,
)

CALIBRATIONS = Table(
    "calibrations",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("document", Text, nullable=False),
    sqlite_autoincrement=True,
)

# What was asked for together.
REPLAYS = Table(
    "replays",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("final", Boolean, nullable=False, index=True),
    Column("document", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("events", Text),
    sqlite_autoincrement=True,
)
RESULTS = Table(
    "replay_results",
    METADATA,
    Column("replays_id", String, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("row", Text, nullable=False),
    Column("result", Text, nullable=False),
    sqlite_with_rowid=False,
)

# Who may ask: of a token only its hash is kept.
TOKENS = Table(
    "tokens",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("client", String, nullable=False),
    Column("role", String, nullable=False),
    Column("hash", String, nullable=False, unique=True),
    Column("created_at_s", Float, nullable=False),
    Column("expires_at_s", Float),
    Column("revoked_at_s", Float),
    sqlite_autoincrement=True,
)
# Who changed what, or was refused. Rows are added, and go when they are as old as they are kept; none is changed.
AUDIT = Table(
    "audit",
    METADATA,
    Column("sequence", _NUMBER, primary_key=True, autoincrement=True),
    Column("at_s", Float, nullable=False, index=True),
    Column("client", String),
    Column("role", String),
    Column("action", String, nullable=False),
    Column("resource", String, nullable=False),
    Column("created", String),
    Column("request_id", String, nullable=False),
    Column("status", Integer),
    sqlite_autoincrement=True,
)
