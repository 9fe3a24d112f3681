# The hash that spreads keys over partitions.


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
    """The 32-bit hash (signed) by which Kafka's clients choose a key's partition."""
    return <int32_t>hash_object(data)


def partition_for_key(key, int32_t partitions):
    """The partition of `key` in a topic of `partitions`: the same as the Java client's."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return <int32_t>((hash_object(key) & 0x7FFFFFFF) % <uint32_t>partitions)
