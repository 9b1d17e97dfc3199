"""What can be hooked in the frameworks that are installed here: one JSON object. Imports them, so it takes seconds."""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    """Import, hook, say what was found."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # no GPU is needed to look, and none must be taken
    from ..names import Names
    from . import HookSet

    hooks = HookSet(Names())
    hooks.install()
    problems = []
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the finding
            problems.append(f"{name} does not import: {type(error).__name__}: {error}"[:300])
    print(json.dumps({"hooked": hooks.hooked(), "problems": problems + hooks.problems}))


if __name__ == "__main__":
    main()
