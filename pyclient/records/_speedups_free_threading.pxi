# What holds without the interpreter's lock (PEP 703); where there is one, none of it costs anything.

cdef extern from *:
    """
    /* What was stored before one of these is seen by who has passed the other. x86 does so by itself. */
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
"""Whether a call of compiled code takes effect at one moment: another thread has to wait for the interpreter's lock.

It stays so once it is, for that lock may be switched on while a program runs, but not off.
"""

cdef bint atomic = ATOMIC
