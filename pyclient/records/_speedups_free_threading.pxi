# Locks for builds without the GIL (PEP 703); with the GIL they cost nothing.

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    static PyMutex spare_blocks_mutex;
    static inline void lock_spare_blocks(void) { PyMutex_Lock(&spare_blocks_mutex); }
    static inline void unlock_spare_blocks(void) { PyMutex_Unlock(&spare_blocks_mutex); }
    #else
    static inline void lock_spare_blocks(void) {}
    static inline void unlock_spare_blocks(void) {}
    #endif
    """
    void lock_spare_blocks() noexcept
    void unlock_spare_blocks() noexcept


ATOMIC = getattr(sys, "_is_gil_enabled", lambda: True)()
"""True if a call of compiled code is atomic, because the GIL is enabled.

It cannot change later: the GIL may be enabled while a program runs, but not disabled.
"""
