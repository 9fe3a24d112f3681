"""A client's sockets in a child made by `fork`: there they lead nowhere.

The child has every connection of its parent. A loop that it goes on running, or that asyncio winds up when it ends,
would write to them, read answers that the parent waits for, and take them off the parent's loop, as the kernel's list
of what an epoll instance watches is shared as well.
"""

from __future__ import annotations

import atexit
import os
import socket
import weakref

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def keep_from_children(sock: socket.socket) -> None:
    """In every child that is forked from now on, what has this socket's number is another one, which is always idle."""
    _sockets.add(sock)


def _in_child() -> None:
    inherited = [sock for sock in list(_sockets) if sock.fileno() >= 0]
    if not inherited:
        return
    idle, far = socket.socketpair()
    idle.setblocking(False)
    for sock in inherited:
        os.dup2(idle.fileno(), sock.fileno(), inheritable=False)
    idle.close()
    far.detach()  # it stays open, else the others would be at their end
    atexit.register(_let_go, inherited)  # their numbers stay taken: the loop may still be woken for one of them


def _let_go(inherited: list[socket.socket]) -> None:
    for sock in inherited:
        sock.detach()  # not a socket that somebody forgot to close


os.register_at_fork(after_in_child=_in_child)
