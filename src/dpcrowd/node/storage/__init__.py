"""What a node stores durably: payments, noisy values, records, releases, and check-ins until counted.

`dpcrowd.db`, an SQLite file in the ledger's folder, holds only numbers that are noisy and paid for, or derived from
such numbers; `journal/`, in the node's own folder, holds one file per open slot with its check-ins and is never part of
a backup.
"""

from dpcrowd.node.storage.failures import SlotTaken, StorageError
from dpcrowd.node.storage.journal import Journal
from dpcrowd.node.storage.ledger import LedgerStore, StoredSample
from dpcrowd.node.storage.notes import Event, Events, Memory, Refusal, Refusals
from dpcrowd.node.storage.records import RecordRow, RecordStore
from dpcrowd.node.storage.releases import Releases
from dpcrowd.node.storage.storage import Storage, forget_journal

__all__ = [
    "Event",
    "Events",
    "Journal",
    "LedgerStore",
    "Memory",
    "RecordRow",
    "RecordStore",
    "Refusal",
    "Refusals",
    "Releases",
    "SlotTaken",
    "Storage",
    "StorageError",
    "StoredSample",
    "forget_journal",
]
