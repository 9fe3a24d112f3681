# Memory ordering for builds without the GIL (PEP 703); with the GIL it costs nothing.

cdef extern from *:
    """
    /* Stores before `stores_done` are visible after `loads_begin` in another thread. x86 orders them anyway. */
    static inline void stores_done(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
    static inline void loads_begin(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }

    #ifdef Py_GIL_DISABLED
    static PyMutex spare_blocks_mutex;
    static inline void lock_spare_blocks(void) { PyMutex_Lock(&spare_blocks_mutex); }
    static inline void unlock_spare_blocks(void) { PyMutex_Unlock(&spare_blocks_mutex); }
    #else
    static inline void lock_spare_blocks(void) {}
    static inline void unlock_spare_blocks(void) {}
    #endif
    """
    void stores_done() noexcept
    void loads_begin() noexcept
    void lock_spare_blocks() noexcept
    void unlock_spare_blocks() noexcept


ATOMIC = getattr(sys, "_is_gil_enabled", lambda: True)()
"""True if a call of compiled code is atomic, because the GIL is enabled.

It cannot change later: the GIL may be enabled while a program runs, but not disabled.
"""

cdef bint atomic = ATOMIC
