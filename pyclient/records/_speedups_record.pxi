# The consumer's record, and the producer's handle for a record.


cdef class Record:
    """One consumed record; immutable.

    `timestamp_ms` is epoch milliseconds, `timestamp_type` one of `pyclient.types.TIMESTAMP_*`; `leader_epoch` is -1
    if unknown; `headers` is a tuple of (name, value) pairs.
    """

    __match_args__ = (
        "topic", "partition", "offset", "timestamp_ms", "timestamp_type", "leader_epoch", "key", "value", "headers",
    )
    __class_getitem__ = classmethod(types.GenericAlias)

    cdef readonly str topic
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly int32_t partition
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t timestamp_type

    def __init__(
        self, topic, partition, offset, timestamp_ms, timestamp_type, leader_epoch, key, value, headers=()
    ):
        if not isinstance(topic, str) or not isinstance(headers, tuple):
            raise TypeError("a record's topic is a str and its headers are a tuple")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch
        self.key = key
        self.value = value
        self.headers = headers

    def replace(self, key, value):
        """Return a copy of the record with another key and value (from the deserializers)."""
        cdef Record record = Record.__new__(Record)
        record.topic = self.topic
        record.partition = self.partition
        record.offset = self.offset
        record.timestamp_ms = self.timestamp_ms
        record.timestamp_type = self.timestamp_type
        record.leader_epoch = self.leader_epoch
        record.key = key
        record.value = value
        record.headers = self.headers
        return record

    cdef tuple fields(self):
        return (
            self.topic, self.partition, self.offset, self.timestamp_ms, self.timestamp_type, self.leader_epoch,
            self.key, self.value, self.headers,
        )

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self.fields() == (<Record>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        fields = zip(self.__match_args__, self.fields(), strict=True)
        return f"Record({', '.join([f'{name}={value!r}' for name, value in fields])})"

    def __reduce__(self):
        return restore_record, self.fields()


@cython.no_gc
cdef class RecordHandle:
    """The batch, index and timestamp (epoch ms) of an appended record; the base of the producer's futures.

    A subclass has `__slots__ = ()`; its `__init__` is not called. The garbage collector does not look at handles, so
    that a million of them cost it nothing: what `batch` refers to must not refer back for ever.
    """

    def __init__(self, batch, Py_ssize_t index, int64_t timestamp_ms=-1):
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms
