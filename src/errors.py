"""Errors that a person caused and can mend: one line each, and the exit code that goes with it."""

from __future__ import annotations


class HpcsamplerError(Exception):
    """Something the user can mend. Its text is one line that says what to do."""

    exit_code = 1


class UsageError(HpcsamplerError):
    """A flag, a setting or an argument that can't be right: exit code 2, as for any command line."""

    exit_code = 2


class RuntimeDirectoryError(HpcsamplerError):
    """The directory of the sockets can't be used."""
