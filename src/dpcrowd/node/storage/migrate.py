"""The schema of the ledger's file, as a list of steps: the first n steps have been applied to a file of version n.

A step is never changed once it is in a release; new steps are appended. The ledger is copied before it is migrated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpcrowd.node.storage.database import Database
from dpcrowd.node.storage.failures import StorageError

__all__ = ["LEDGER_STEPS", "check_version", "migrate"]

Step = tuple[str, ...]

# Keyed by UTC time, not by slot number: numbers begin again with a new epoch, and payments must not.
LEDGER_STEPS: tuple[Step, ...] = (
    (
        """CREATE TABLE account (
            only INTEGER PRIMARY KEY CHECK (only = 1),
            counter INTEGER NOT NULL CHECK (typeof(counter) = 'integer' AND counter >= 0),
            total INTEGER NOT NULL CHECK (typeof(total) = 'integer' AND total >= 0))""",
        "INSERT INTO account VALUES (1, 0, 0)",
        """CREATE TABLE ledger (
            counter INTEGER PRIMARY KEY,
            network TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('sample', 'lost')),
            slot INTEGER,
            opens_ns INTEGER NOT NULL,
            closes_ns INTEGER NOT NULL CHECK (closes_ns > opens_ns),
            nano INTEGER NOT NULL CHECK (typeof(nano) = 'integer' AND nano > 0),
            reason TEXT NOT NULL DEFAULT '')""",
        "CREATE UNIQUE INDEX one_draw ON ledger (network, opens_ns) WHERE kind = 'sample'",
        "CREATE INDEX ledger_closes ON ledger (closes_ns, opens_ns, nano)",
        """CREATE TRIGGER ledger_keeps BEFORE DELETE ON ledger
            BEGIN SELECT RAISE(ABORT, 'a payment is never deleted'); END""",
        """CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger
            BEGIN SELECT RAISE(ABORT, 'a payment is never changed'); END""",
        """CREATE TABLE noisy (
            counter INTEGER PRIMARY KEY REFERENCES ledger (counter),
            noisy BLOB NOT NULL)""",
        """CREATE TABLE promise (
            network TEXT PRIMARY KEY,
            nano INTEGER NOT NULL CHECK (nano > 0),
            span_ns INTEGER CHECK (span_ns > 0),
            since_ns INTEGER NOT NULL DEFAULT 0)""",
        """CREATE TABLE state (
            network TEXT PRIMARY KEY,
            state BLOB NOT NULL)""",
        "CREATE TABLE regions (id INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE)",
        """CREATE TABLE release (
            network TEXT NOT NULL,
            opens_ns INTEGER NOT NULL,
            closes_ns INTEGER NOT NULL,
            slot INTEGER NOT NULL,
            regions INTEGER NOT NULL REFERENCES regions (id),
            sampled INTEGER NOT NULL,
            nano INTEGER NOT NULL,
            heard INTEGER NOT NULL,
            factor REAL NOT NULL,
            estimate BLOB NOT NULL,
            variance BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX one_release ON release (network, opens_ns)",
        """CREATE TABLE refusal (
            network TEXT NOT NULL,
            opens_ns INTEGER NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('message', 'check-in')),
            reason TEXT NOT NULL,
            count INTEGER NOT NULL CHECK (kind = 'message' OR count = 1),
            PRIMARY KEY (network, opens_ns, kind, reason)) WITHOUT ROWID""",
        """CREATE TABLE neighbour (
            network TEXT NOT NULL,
            name TEXT NOT NULL,
            slot INTEGER NOT NULL,
            counter INTEGER NOT NULL,
            PRIMARY KEY (network, name)) WITHOUT ROWID""",
        """CREATE TABLE event (
            id INTEGER PRIMARY KEY,
            network TEXT NOT NULL,
            at_ns INTEGER NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL)""",
    ),
    (
        # Each network counts its own payments: whoever confirms a loss in one must not hide that of another.
        """CREATE TABLE tally (
            network TEXT PRIMARY KEY,
            counter INTEGER NOT NULL CHECK (typeof(counter) = 'integer' AND counter > 0))""",
        "INSERT INTO tally SELECT network, max(counter) FROM ledger GROUP BY network",
        "ALTER TABLE promise ADD COLUMN sensitivity INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE promise ADD COLUMN roaming INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE ahead (
            id INTEGER PRIMARY KEY,
            network TEXT NOT NULL,
            payments INTEGER NOT NULL,
            at_ns INTEGER NOT NULL,
            moved_ns INTEGER NOT NULL CHECK (moved_ns > 0))""",
        # A counter without the neighbour's signature is worth little: the neighbour need not believe others.
        "ALTER TABLE neighbour ADD COLUMN proof BLOB NOT NULL DEFAULT x''",
    ),
    (
        # For how many regions and servers the noise of a payment was made. Of old rows it is not known: a promise may
        # have been made for more of them since, and noise that is taken for larger than it was would cost too little.
        "ALTER TABLE ledger ADD COLUMN regions INTEGER NOT NULL DEFAULT 1 CHECK (regions > 0)",
        "ALTER TABLE ledger ADD COLUMN servers INTEGER NOT NULL DEFAULT 1 CHECK (servers > 0)",
        "DROP INDEX ledger_closes",
        "CREATE INDEX ledger_closes ON ledger (closes_ns, opens_ns, nano, regions, servers)",
        # Null: only the product, `sensitivity`, is known, until the network declares its promise again.
        "ALTER TABLE promise ADD COLUMN regions INTEGER CHECK (regions > 0)",
        "ALTER TABLE promise ADD COLUMN servers INTEGER CHECK (servers > 0)",
        # Slots of 1 ns: not known, and any moment may begin a window.
        "ALTER TABLE promise ADD COLUMN slot_ns INTEGER NOT NULL DEFAULT 1 CHECK (slot_ns > 0)",
        "ALTER TABLE promise ADD COLUMN epoch_ns INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE promise ADD COLUMN horizon_slot INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE paid_windows (
            network TEXT NOT NULL,
            slot_ns INTEGER NOT NULL CHECK (slot_ns > 0),
            offset_ns INTEGER NOT NULL,
            span_ns INTEGER NOT NULL CHECK (span_ns > 0),
            PRIMARY KEY (network, slot_ns, offset_ns)) WITHOUT ROWID""",
        # Every sample is one slot of its network, so its times tell under which slots the network has paid.
        """INSERT INTO paid_windows
            SELECT DISTINCT network, closes_ns - opens_ns, opens_ns % (closes_ns - opens_ns), span_ns
            FROM ledger JOIN promise USING (network) WHERE kind = 'sample' AND span_ns IS NOT NULL""",
        """CREATE TABLE horizon (
            network TEXT NOT NULL,
            since_ns INTEGER NOT NULL,
            nano INTEGER NOT NULL CHECK (nano > 0),
            PRIMARY KEY (network, since_ns)) WITHOUT ROWID""",
        # The first horizon, and every later one: the command wrote its time into the log and into the promise.
        "INSERT INTO horizon SELECT network, 0, nano FROM promise WHERE span_ns IS NULL",
        "INSERT OR IGNORE INTO horizon SELECT network, since_ns, nano FROM promise WHERE span_ns IS NULL",
        """INSERT OR IGNORE INTO horizon SELECT network, at_ns, nano
            FROM event JOIN promise USING (network) WHERE kind = 'new-horizon' AND span_ns IS NULL""",
    ),
    (
        # How far back the memory of a neighbour reaches; without it, to the slot in which the counter was first sent.
        "ALTER TABLE neighbour ADD COLUMN since INTEGER",
        # The last slot up to which this ledger was known to be complete, because the node could sample then.
        "CREATE TABLE complete (network TEXT PRIMARY KEY, until_slot INTEGER NOT NULL)",
    ),
    (
        # How much of a jump of the clock has been undone by a jump back.
        "ALTER TABLE ahead ADD COLUMN returned_ns INTEGER NOT NULL DEFAULT 0 CHECK (returned_ns >= 0)",
    ),
    (
        # Records of the last slots, which are passed on after a restart, too.
        """CREATE TABLE record (
            network TEXT NOT NULL,
            slot INTEGER NOT NULL,
            origin TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('record', 'proof')),
            content BLOB NOT NULL,
            PRIMARY KEY (network, slot, origin)) WITHOUT ROWID""",
    ),
    (
        # Past slots, estimated again with later records. Slots that a server has missed have no release, so a smoothed
        # slot names its own regions and times; and what was released stays as it was.
        """CREATE TABLE smoothed (
            network TEXT NOT NULL,
            opens_ns INTEGER NOT NULL,
            closes_ns INTEGER NOT NULL,
            slot INTEGER NOT NULL,
            regions INTEGER NOT NULL REFERENCES regions (id),
            factor REAL NOT NULL,
            estimate BLOB NOT NULL,
            variance BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX one_smoothed ON smoothed (network, opens_ns)",
    ),
    (
        # What the records of a slot say by themselves. Of slots that were final before, it is not known.
        "ALTER TABLE smoothed ADD COLUMN measurement BLOB",
        "ALTER TABLE smoothed ADD COLUMN measurement_var BLOB",
    ),
    (
        # Models of earlier revisions, for the promise: what was made with them is in the estimates (`config.promise`).
        """CREATE TABLE earlier_model (
            network TEXT NOT NULL,
            digest TEXT NOT NULL,
            source TEXT NOT NULL,
            until_slot INTEGER NOT NULL,
            goes_on INTEGER NOT NULL CHECK (goes_on IN (0, 1)),
            PRIMARY KEY (network, digest)) WITHOUT ROWID""",
    ),
)


def migrate(database: Database, steps: Sequence[Step], *, keep_copy: bool) -> Path | None:
    """Bring a file to the newest version in one transaction; return the path of the copy made before, or None."""
    version = check_version(database, steps)
    if version == len(steps):
        return None
    copy = None
    if keep_copy and version > 0:
        copy = _unused_path(database.path, version)
        database.copy_to(copy)
    with database.transaction() as connection:
        for step in steps[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
    return copy


def check_version(database: Database, steps: Sequence[Step], *, exact: bool = False) -> int:
    """Return the file's version; refuse one that is newer than this program and, with `exact`, also an older one."""
    row = database.row("PRAGMA user_version")
    version = int(row[0]) if row else 0
    if version > len(steps):
        raise StorageError(
            "newer",
            f"{database.path} was written by a later dpcrowd (schema {version}; this one knows {len(steps)})",
            "install the later version again",
        )
    if exact and version < len(steps):
        raise StorageError(
            "older",
            f"{database.path} was written by an earlier dpcrowd (schema {version}; this one uses {len(steps)})",
            "start the node once, which migrates it",
        )
    return version


def _unused_path(path: Path, version: int) -> Path:
    """Return a path beside the file that does not exist yet, named after the version."""
    candidate = path.with_name(f"{path.stem}.schema-{version}{path.suffix}")
    number = 2
    while candidate.exists():
        candidate = path.with_name(f"{path.stem}.schema-{version}-{number}{path.suffix}")
        number += 1
    return candidate
