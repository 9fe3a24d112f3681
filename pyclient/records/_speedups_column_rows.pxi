# Read rows from columns; every offset is checked, because the columns are the caller's.

cdef enum:
    NO_ROW = 1
    KEY_ROW = 2
    VALUE_ROW = 3
    HEADER_ROW = 4
    HEADER_NAME = 5
    NO_MEMORY = 6


@cython.final
cdef class Words:
    """Integers in the machine's byte order in a caller's buffer."""

    cdef object memory
    cdef const uint8_t* data
    cdef int64_t length

    def __cinit__(self, buffer, Py_ssize_t width):
        self.memory = memoryview(buffer).cast("B").cast("i" if width == 4 else "q")
        self.data = <const uint8_t*>PyMemoryView_GET_BUFFER(self.memory).buf
        self.length = len(self.memory)

    cdef inline int32_t int32(self, int64_t at) noexcept nogil:
        cdef int32_t value
        memcpy(&value, self.data + 4 * at, 4)
        return value

    cdef inline int64_t int64(self, int64_t at) noexcept nogil:
        cdef int64_t value
        memcpy(&value, self.data + 8 * at, 8)
        return value


@cython.final
cdef class Binary:
    """A column of byte strings."""

    cdef Words offsets
    cdef object data_memory
    cdef object validity_memory
    cdef const uint8_t* data
    cdef const uint8_t* validity
    cdef int64_t data_size
    cdef int64_t start
    cdef int64_t length

    def __cinit__(self, column, what):
        cdef int64_t bits
        self.start = column.start
        self.length = column.length
        self.offsets = Words(column.offsets, 4)
        self.data_memory = memoryview(column.data).cast("B")
        self.data = <const uint8_t*>PyMemoryView_GET_BUFFER(self.data_memory).buf
        self.data_size = len(self.data_memory)
        self.validity = NULL
        bits = column.start + column.length
        if column.validity is not None:
            self.validity_memory = memoryview(column.validity).cast("B")
            self.validity = <const uint8_t*>PyMemoryView_GET_BUFFER(self.validity_memory).buf
            bits = 8 * len(self.validity_memory)
        end = column.start + column.length
        if self.start < 0 or self.length < 0 or end >= self.offsets.length or end > bits:
            raise ValueError(f"the {what} column says {column.length} rows from {column.start} and has fewer")

    cdef inline int read(self, int64_t number, Field* field) noexcept nogil:
        """Return not 0 if the row is not in the data."""
        cdef int64_t at = self.start + number
        cdef int32_t begin, end
        if self.validity != NULL and not self.validity[at >> 3] >> (at & 7) & 1:
            field.size = -1
            return 0
        begin = self.offsets.int32(at)
        end = self.offsets.int32(at + 1)
        if begin < 0 or begin > end or end > self.data_size:
            return 1
        field.data = self.data + begin
        field.size = end - begin
        return 0


cdef inline object set_field(Field* field, object data, str what):
    """Point `field` into `data`; the caller keeps a reference to the returned object."""
    if data is not None and not PyBytes_CheckExact(data):
        data = as_bytes(data, what)
    point_to(field, data)
    return data


@cython.final
cdef class Scratch:
    """The bytes of one record's headers, without their count."""

    cdef uint8_t* data
    cdef int64_t size
    cdef int64_t capacity
    cdef int64_t count

    def __dealloc__(self):
        free(self.data)

    cdef int fill(self, object headers) except -1:
        """Encode a caller's headers."""
        cdef Field name, value
        cdef Py_ssize_t length
        self.clear()
        for pair in headers:
            if type(pair) is not tuple or len(<tuple>pair) != 2 or type((<tuple>pair)[0]) is not str:
                pair = header_pair(pair)
            text = (<tuple>pair)[0]
            name.data = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, &length)
            name.size = length
            content = set_field(&value, (<tuple>pair)[1], "header's value")
            if self.add(&name, &value):
                raise MemoryError
        return 0

    cdef void clear(self) noexcept nogil:
        self.size = 0
        self.count = 0

    cdef int add(self, Field* name, Field* value) noexcept nogil:
        """Return not 0 if out of memory."""
        cdef int64_t capacity = self.size + field_size(name) + field_size(value)
        cdef uint8_t* grown
        if capacity > self.capacity:
            grown = <uint8_t*>realloc(self.data, 2 * capacity)
            if grown == NULL:
                return NO_MEMORY
            self.data = grown
            self.capacity = 2 * capacity
        self.size = write_field(write_field(self.data + self.size, name), value) - self.data
        self.count += 1
        return 0


@cython.final
cdef class ColumnRows:
    """The rows of several columns."""

    cdef int64_t length
    cdef int64_t one_timestamp
    cdef Words timestamps
    cdef Binary keys
    cdef Binary values
    cdef Words header_offsets
    cdef Binary names
    cdef Binary header_values
    cdef Scratch scratch

    def __cinit__(self, timestamps, keys, values, headers):
        if isinstance(timestamps, int):
            self.one_timestamp = timestamps
        else:
            self.timestamps = Words(timestamps, 8)
        self.values = Binary(values, "value")
        self.length = self.values.length
        if keys is not None:
            self.keys = Binary(keys, "key")
        if headers is not None:
            self.header_offsets = Words(headers.offsets, 4)
            self.names = Binary(headers.names, "header name")
            self.header_values = Binary(headers.values, "header value")
            self.scratch = Scratch()
            if self.header_offsets.length <= self.length:
                raise ValueError("the header column has fewer rows than the value column")
        if self.keys is not None and self.keys.length < self.length:
            raise ValueError("the key column has fewer rows than the value column")
        if self.timestamps is not None and self.timestamps.length < self.length:
            raise ValueError("the timestamp column has fewer rows than the value column")

    cdef inline int64_t timestamp(self, int64_t number) noexcept nogil:
        return self.one_timestamp if self.timestamps is None else self.timestamps.int64(number)

    cdef inline bint are_values_alone(self) noexcept nogil:
        """Return True if rows have no key, no headers, no nulls and one common timestamp."""
        return (
            self.keys is None
            and self.header_offsets is None
            and self.timestamps is None
            and self.values.validity == NULL
        )

    cdef inline int read(self, int64_t number, Row* row) noexcept nogil:
        """Return the problem of the row, or 0."""
        row.header_count = 0
        row.headers_size = 0
        if number < 0 or number >= self.length:
            return NO_ROW
        row.key.size = -1
        if self.keys is not None and self.keys.read(number, &row.key):
            return KEY_ROW
        if self.values.read(number, &row.value):
            return VALUE_ROW
        return 0 if self.header_offsets is None else self.read_headers(number, row)

    cdef int read_headers(self, int64_t number, Row* row) noexcept nogil:
        cdef Field name, value
        cdef int32_t at = self.header_offsets.int32(number)
        cdef int32_t end = self.header_offsets.int32(number + 1)
        if at < 0 or at > end or end > self.names.length or end > self.header_values.length:
            return HEADER_ROW
        self.scratch.clear()
        while at < end:
            if self.names.read(at, &name):
                return HEADER_ROW
            name.size = max(name.size, 0)
            if not is_utf8(name.data, name.size):
                return HEADER_NAME
            if self.header_values.read(at, &value):
                return HEADER_ROW
            if self.scratch.add(&name, &value):
                return NO_MEMORY
            at += 1
        row.header_count = self.scratch.count
        row.headers_size = self.scratch.size
        row.headers = self.scratch.data
        return 0

    def error(self, int64_t number, int problem):
        """Return the error for the problem that `read` returned."""
        if problem == NO_MEMORY:
            return MemoryError()
        if problem == NO_ROW:
            return ValueError(f"row {number} is not in columns of {self.length} rows")
        if problem == HEADER_NAME:
            return ValueError(f"row {number} of the header column has a name that is not UTF-8")
        what = {KEY_ROW: "key", VALUE_ROW: "value", HEADER_ROW: "header"}[problem]
        return ValueError(f"row {number} of the {what} column is not in its data")
