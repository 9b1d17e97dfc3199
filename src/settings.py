"""Every setting, in one place: flag > HPCSAMPLER_* > file > default."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


_LONGEST_NAME = 256
_PREFIX = "HPCSAMPLER_"
_NO_SETTINGS = ("ATTACHED_PID", "CONFIG", "RUNTIME_DIR")
"""What else the environment can hold: where things are, and what one part of hpcsampler tells another."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be set. The file is TOML with the same names: ~/.config/hpcsampler/config.toml or $HPCSAMPLER_CONFIG."""

    enabled: bool = True
    """False: `attach()` does nothing, for a run without the sampler and without a change to the script."""
    daemon: str = "auto"
    """`auto` starts a daemon if there is none, `never` only uses a running one, else a ZeroMQ address (ipc://…)."""
    job: str | None = None
    rank: int | None = None
    world_size: int | None = None
    flush_ms: float = 100.0
    """How often a rank sends its events."""
    ring_events: int = 65536
    """Events that a rank can hold between two sends: a power of two."""
    publish_ms: float = 200.0
    """How often the daemon publishes a snapshot."""
    gpu_ms: float = 200.0
    """How often the daemon reads each GPU."""
    linger_s: float = 60.0
    """How long a daemon that a rank started stays after its last rank has gone, and after its last viewer."""
    mtbf_h: float = 24.0
    """Mean time between failures of a whole job, for the advice on how often to write checkpoints."""


def load(environ: Mapping[str, str], spelled: Callable[[str], str] = "{}=".format, /, **flags: object) -> Settings:
    """The settings in force. A flag that is None was not given; `spelled` is how its user wrote its name.

    Raises `UsageError` with one line for a value that can't be: it names the place and what would be right.
    """
    from_environ = {
        field.name: (f"{_PREFIX}{field.name.upper()}", environ[f"{_PREFIX}{field.name.upper()}"])
        for field in fields(Settings)
        if environ.get(f"{_PREFIX}{field.name.upper()}")
    }
    given = {name: (spelled(name), value) for name, value in flags.items() if value is not None}
    settings = Settings()
    places: dict[str, str] = {}
    for source in (_read_file(environ), from_environ, given):
        settings = _apply(settings, source)
        places.update({name: place for name, (place, _) in source.items()})
    rank, size = settings.rank, settings.world_size
    if rank is not None and size is not None and rank >= size:
        raise UsageError(
            f"{places['rank']} is {rank}, but {places['world_size']} is {size}: write a rank from 0 to {size - 1}",
        )
    return settings


def as_flag(name: str) -> str:
    """A setting as it is spelled on the command line."""
    return f"--{name.replace('_', '-')}"


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A line for each variable that looks like ours and means nothing, with the nearest one that does."""
    known = [*(field.name.upper() for field in fields(Settings)), *_NO_SETTINGS]
    unknown = sorted(name for name in environ if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in known)
    if not unknown:
        return []
    import difflib

    nearest = {
        name: difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1, cutoff=0.0)[0] for name in unknown
    }
    return [
        f"{name[:_LONGEST_NAME]!r} is set, but means nothing: the nearest that does is {_PREFIX}{nearest[name]}"
        for name in unknown
    ]


def _read_file(environ: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    chosen = environ.get("HPCSAMPLER_CONFIG")
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "/")) / ".config")
    path = Path(chosen) if chosen else Path(base) / "hpcsampler" / "config.toml"
    if not chosen and not os.access(path, os.R_OK):
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"can't read the settings file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the settings file {path} is not valid TOML: {error}") from None
    known = {field.name for field in fields(Settings)}
    for name in content:
        if name not in known:
            raise UsageError(
                f"the settings file {path} has an unknown setting {name!r}: known are {', '.join(sorted(known))}",
            )
    return {name: (f"{path}: {name}", value) for name, value in content.items()}


def _apply(settings: Settings, values: Mapping[str, tuple[str, object]]) -> Settings:
    return replace(settings, **{name: _CHECKS[name](place, value) for name, (place, value) in values.items()})


def _boolean(place: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text in {"1", "true", "yes", "on"}:
        return True
    if text in {"0", "false", "no", "off"}:
        return False
    raise UsageError(f"{place} is {value!r}: write 1 or 0")


_RANKS_MOST = 10**9


def _integer(least: int, below: int = _RANKS_MOST) -> Callable[[str, object], int]:
    def check(place: str, value: object) -> int:
        try:
            number = int(str(value).strip())
        except ValueError:
            number = least - 1
        if isinstance(value, bool) or number < least:
            raise UsageError(f"{place} is {value!r}: write a whole number from {least}")
        if number >= below:
            raise UsageError(f"{place} is {str(value)[:40]!r}: write a whole number below {below}")
        return number

    return check


def _power_of_two(place: str, value: object) -> int:
    number = _integer(64, 10**99)(place, value)
    if number & (number - 1) or number > 1 << 24:
        raise UsageError(f"{place} is {str(value)[:40]!r}: write a power of two from 64 to {1 << 24}")
    return number


def _number(least: float, most: float) -> Callable[[str, object], float]:
    def check(place: str, value: object) -> float:
        try:
            number = float(str(value).strip())
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            raise UsageError(f"{place} is {value!r}: write a number from {least:g} to {most:g}")
        return number

    return check


_ADDRESS, _ADDRESS_MOST = len("ipc://"), len("ipc://") + 107
"""Without a path, and with the longest that a socket can have on Linux (unix(7))."""


def _daemon(place: str, value: object) -> str:
    text = str(value).strip()
    if text in {"auto", "never"} or (text.startswith("ipc://") and _ADDRESS < len(text.encode()) <= _ADDRESS_MOST):
        return text
    if text.startswith("tcp://"):
        raise UsageError(f"{place} is {text!r}: only ipc:// addresses are taken; a tcp address would need keys")
    raise UsageError(
        f"{place} is {text!r}: write auto, never or an address such as ipc:///run/user/1000/hpcsampler/events.sock",
    )


def _text(place: str, value: object) -> str:
    text = str(value).strip()
    if not isinstance(value, str | int) or not 0 < len(text) <= _LONGEST_NAME or not text.isprintable():
        raise UsageError(f"{place} is {text[:40]!r}: write a name of 1 to {_LONGEST_NAME} printable characters")
    return text


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "enabled": _boolean,
    "daemon": _daemon,
    "job": _text,
    "rank": _integer(0),
    "world_size": _integer(1),
    "flush_ms": _number(10, 10_000),
    "ring_events": _power_of_two,
    "publish_ms": _number(20, 10_000),
    "gpu_ms": _number(50, 60_000),
    "linger_s": _number(0, 1e7),
    "mtbf_h": _number(0.01, 1e6),
}
