"""All public errors: one class for each of Kafka's error codes, and the client's own.

KafkaError
|-- BrokerError            an error code a broker answered with; `code` and `retriable` are Kafka's
|   |-- NotLeaderOrFollower, CorruptMessage, ...
|   `-- UnknownErrorCode   a code newer than this library
`-- ClientError            detected by the client
    |-- ConfigError, ClosedError, ForkError, SerializationError, PartitionerError (also a ValueError)
    |-- ConnectionFailed (also a ConnectionError): ClusterUnreachable
    |-- KafkaTimeout (also a TimeoutError)
    |-- BufferExhausted (a KafkaTimeout, also a BufferError), DeliveryTimeout (a KafkaTimeout), DeliveryFailed
    |-- NotAssigned (also a ValueError), CommitFailed, NoOffsetForPartition,
    |   LogTruncation, PollIntervalExceeded, ConcurrentUse, Wakeup
    |-- TransactionStateError (also a RuntimeError), TransactionAborted, TransactionOutcomeUnknown
    |-- PoisonRecord: DeserializationError (also a SerializationError), CorruptBatch (also a CorruptRecord)
    `-- ProtocolError: TruncatedMessage, MalformedMessage, FieldNotInVersion, CorruptRecord

The codes' classes are in one module per area; all of them are used, shown and pickled as `pyclient.errors.<name>`.
"""

from __future__ import annotations

from pyclient.errors import base, client, codes, general, groups, quorum, records, security, topics, transactions
from pyclient.errors.base import *  # noqa: F403
from pyclient.errors.client import *  # noqa: F403
from pyclient.errors.codes import *  # noqa: F403
from pyclient.errors.general import *  # noqa: F403
from pyclient.errors.groups import *  # noqa: F403
from pyclient.errors.quorum import *  # noqa: F403
from pyclient.errors.records import *  # noqa: F403
from pyclient.errors.security import *  # noqa: F403
from pyclient.errors.topics import *  # noqa: F403
from pyclient.errors.transactions import *  # noqa: F403

__all__ = base.__all__ + client.__all__ + codes.__all__
__all__ += general.__all__ + groups.__all__ + quorum.__all__ + records.__all__
__all__ += security.__all__ + topics.__all__ + transactions.__all__

for _name in __all__:
    globals()[_name].__module__ = __name__  # tracebacks and pickles do not depend on the defining module
