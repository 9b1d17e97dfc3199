"""Why a function was traced again: what the types of its arguments say. Pure; knows TensorFlow's types by shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SAME = "the same arguments in another context (device, strategy or scope)"
_TEXT_MOST = 60
_SHOWN = 3


def explain(cached: Sequence[Mapping[str, Any]], new: Mapping[str, Any]) -> str:
    """What differs from that trace among `cached` that is most like `new`; of several, from the latest.

    Both are types by the name of an argument.
    """
    nearest = min((differences(old, new) for old in reversed(cached)), key=len, default=[])
    if not nearest:
        return SAME if cached else ""
    more = f"; and {len(nearest) - _SHOWN} more" if len(nearest) > _SHOWN else ""
    return "; ".join(nearest[:_SHOWN]) + more


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One line for each place in the arguments that differs."""
    found: list[str] = []
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new:
            found.append(f"argument {name}: no longer given")
        elif name not in old:
            found.append(f"argument {name}: newly given")
        else:
            found.extend(_between(name, old[name], new[name]))
    return found


def _between(place: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    parts_old, parts_new = _parts(old), _parts(new)
    if parts_old and parts_new and type(old) is type(new) and parts_old.keys() == parts_new.keys():
        inner = [line for key in parts_old for line in _between(f"{place}{key}", parts_old[key], parts_new[key])]
        if inner:
            return inner
    before, after = describe(old), describe(new)
    if before == after:
        return [f"argument {place}: another {after}"]
    return [f"argument {place}: {before} → {after}"]


def _parts(kind: Any) -> dict[str, Any]:
    """What a tuple, list or dict holds, by how one gets at it: `[0]`, `['x']`."""
    inside = getattr(kind, "components_tuple", kind)
    components = getattr(inside, "components", None)
    if isinstance(components, tuple | list):
        return {f"[{i}]": component for i, component in enumerate(components)}
    mapping = getattr(kind, "mapping", None)
    if isinstance(mapping, dict):
        return {f"[{key!r}]": value for key, value in mapping.items()}
    # Of a dataclass or a named tuple: a tuple of values beside one of names.
    named = getattr(kind, "named_attributes", kind)
    names = getattr(named, "attribute_names", None)
    values = getattr(getattr(named, "attributes", None), "components", None)
    if names is not None and values is not None:
        return {f".{name}": value for name, value in zip(names, values, strict=False)}
    return {}


def describe(kind: Any) -> str:
    """A type of TensorFlow's as its user would say it: `float32[8,4]`, `3`, `tuple of 2`."""
    name = type(kind).__name__
    if hasattr(kind, "dtype") and hasattr(kind, "shape"):
        tensor = f"{getattr(kind.dtype, 'name', kind.dtype)}[{_shape(kind.shape)}]"
        return tensor if name == "TensorSpec" else f"{name.removesuffix('Spec')} {tensor}"
    if hasattr(kind, "value"):
        if type(kind.value) is object:  # what TensorFlow puts in the place of a NaN, so that it is equal to itself
            return "nan"
        return repr(kind.value)[:_TEXT_MOST]
    if hasattr(kind, "_ref"):
        return f"{type(kind._ref()).__name__} object"  # noqa: SLF001 - it has no other way to say what it is of
    parts = _parts(kind)
    if parts:
        keys = f" {', '.join(parts)}"[:_TEXT_MOST] if not next(iter(parts)).startswith("[0") else ""
        return f"{name.lower()} of {len(parts)}{keys}"
    return str(kind)[:_TEXT_MOST]


def _shape(shape: Any) -> str:
    try:
        return ",".join("?" if size is None else str(size) for size in shape)
    except ValueError:
        return "…"  # of unknown rank
