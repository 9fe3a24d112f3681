# The hash that assigns keys to partitions.


cdef uint32_t hash_bytes(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t word, value = 0x9747B28CU ^ <uint32_t>size
    cdef const uint8_t* end = data + size // 4 * 4
    while data < end:
        word = data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        word *= 0x5BD1E995U
        value = value * 0x5BD1E995U ^ (word ^ word >> 24) * 0x5BD1E995U
        data += 4
    if size & 3:
        if size & 3 == 3:
            value ^= <uint32_t>data[2] << 16
        if size & 3 >= 2:
            value ^= <uint32_t>data[1] << 8
        value = (value ^ data[0]) * 0x5BD1E995U
    value = (value ^ value >> 13) * 0x5BD1E995U
    return value ^ value >> 15


cdef uint32_t hash_object(object key) except? 0:
    key = as_bytes(key, "key")
    return hash_bytes(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


def murmur2(data):
    """Return the 32-bit hash (signed) by which Kafka's clients choose a key's partition."""
    return <int32_t>hash_object(data)


def partition_for_key(key, int32_t partitions):
    """Return the partition of `key` in a topic with `partitions`, the same as in the Java client."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return <int32_t>((hash_object(key) & 0x7FFFFFFF) % <uint32_t>partitions)


cdef int32_t partition_of(object keys, int64_t row, int32_t partitions):
    """Return the partition of a key, -1 for a null or invalid one."""
    key = keys[row]
    if key is None:
        return -1
    try:
        return <int32_t>((hash_object(key) & 0x7FFFFFFF) % <uint32_t>partitions)
    except TypeError:
        return -1


cdef void partitions_of(Binary keys, int32_t partitions, int32_t* chosen) noexcept nogil:
    cdef Field key
    cdef int64_t row
    for row in range(keys.length):
        chosen[row] = -1
        if keys.read(row, &key) == 0 and key.size >= 0:
            chosen[row] = <int32_t>((hash_bytes(key.data, key.size) & 0x7FFFFFFF) % <uint32_t>partitions)


def rows_by_partition(keys, int32_t partitions):
    """Group the row numbers (int32, ascending) of a column or sequence of keys by the partition of the key.

    Rows whose key is null or invalid are under -1.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    cdef Binary column = Binary(keys, "key") if isinstance(keys, BinaryColumn) else None
    cdef Py_ssize_t length = len(keys) if column is None else column.length
    cdef Py_ssize_t row
    cdef array.array chosen = array.clone(INT32, length, zero=False)
    cdef array.array sorted_rows = array.clone(INT32, length, zero=False)
    cdef array.array ends = array.clone(INT32, <Py_ssize_t>partitions + 1, zero=True)
    cdef int32_t* places = <int32_t*>ends.data.as_ints  # the count of partition p at p + 2; the lowest is -1
    cdef int32_t* each = <int32_t*>chosen.data.as_ints
    if column is None:
        for row in range(length):
            each[row] = partition_of(keys, row, partitions)
    else:
        with nogil:
            partitions_of(column, partitions, each)
    with nogil:
        for row in range(length):
            if each[row] < partitions - 1:
                places[each[row] + 2] += 1
        for row in range(1, partitions + 1):
            places[row] += places[row - 1]
        for row in range(length):
            sorted_rows.data.as_ints[places[each[row] + 1]] = <int32_t>row
            places[each[row] + 1] += 1
    rows = memoryview(sorted_rows)
    begin = 0
    found = {}
    for partition in range(-1, partitions):
        end = ends[partition + 1]
        if end > begin:
            found[partition] = rows[begin:end]
        begin = end
    return found
