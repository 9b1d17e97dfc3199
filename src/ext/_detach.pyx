# cython: language_level=3
"""Starting a program that is no child of this process."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport calloc, free

import os


cdef extern from "detach.h" nogil:
    int hps_start_detached(char **argv, char **envp, int output_fd)


def start_detached(list arguments, dict environment, int output_fd):
    """Start a program that is no child of this process: no SIGCHLD, no zombie, unseen by the program's own `wait()`.

    arguments[0] is a path. The program gets a session of its own, /dev/null as stdin, `output_fd` as stdout and
    stderr, no other descriptor. Raises `OSError`.
    """
    cdef list keep = [os.fsencode(a) for a in arguments]
    cdef list pairs = [os.fsencode(k) + b"=" + os.fsencode(v) for k, v in environment.items()]
    cdef char **argv = <char **>calloc(len(keep) + 1, sizeof(char *))
    cdef char **envp = <char **>calloc(len(pairs) + 1, sizeof(char *))
    cdef Py_ssize_t i
    cdef int error
    try:
        if argv == NULL or envp == NULL:
            raise MemoryError
        for i in range(len(keep)):
            argv[i] = PyBytes_AS_STRING(keep[i])
        for i in range(len(pairs)):
            envp[i] = PyBytes_AS_STRING(pairs[i])
        with nogil:
            error = hps_start_detached(argv, envp, output_fd)
    finally:
        free(argv)
        free(envp)
    if error != 0:
        raise OSError(error, os.strerror(error), arguments[0])
