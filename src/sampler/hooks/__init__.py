"""One module per thing hooked, and the set of all of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..incidents import Incidents
from .checkpoints import CheckpointHooks
from .collections import CollectionHooks
from .patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..names import Names
    from ..pipeline import PipelineReader
    from .graph import GraphMarks


class HookSet:
    """The hooks of this process: on each framework as soon as it is imported, until `restore`."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._patches = Patches()
        self._active = False
        self._waiting = False
        self._hooked: set[str] = set()
        self._marks: GraphMarks | None = None
        self.incidents = Incidents()
        self._collections = CollectionHooks(names)
        self._checkpoints = CheckpointHooks(names, self.incidents)
        self.pipeline: PipelineReader | None = None
        """Reads the stages of the input pipeline, once TensorFlow is there."""
        self.problems: list[str] = []
        """What could not be hooked, as sentences for the user."""

    def install(self) -> None:
        """Hook what is imported, and what will be."""
        self._active = True
        self._collections.install()
        if not self._waiting:
            self._waiting = True
            import wrapt

            wrapt.when_imported("tensorflow")(lambda module: self._imported("tensorflow", module))
            wrapt.when_imported("keras")(lambda module: self._imported("keras", module))
        else:
            for name in ("tensorflow", "keras"):
                if name in sys.modules:
                    self._imported(name, sys.modules[name])

    def restore(self) -> None:
        """Put back what was wrapped. Marks in graphs stay, and record nothing."""
        self._active = False
        self._hooked.clear()
        self._patches.restore()
        self._collections.restore()

    def hooked(self) -> list[str]:
        """What is wrapped, as `owner.name`."""
        return [*self._patches.targets(), *(["gc.callbacks"] if self._collections.installed else [])]

    def announce_roles(self) -> None:
        """Repeat which iterators feed training, for a daemon that came later."""
        if self._marks is not None:
            self._marks.announce_roles()

    def framework(self) -> str:
        """For example `tensorflow 2.21.0`; empty while none is imported."""
        module = sys.modules.get("tensorflow")
        version = getattr(module, "__version__", "")
        return f"tensorflow {version}" if version else ""

    def _imported(self, name: str, module: Any) -> None:
        if not self._active or name in self._hooked:
            return
        self._hooked.add(name)
        missing = len(self._patches.missing)
        try:
            if name == "tensorflow":
                self._marks = self._hook_tensorflow(module)
            else:
                from .keras import KerasHooks

                self._part("Keras", lambda: KerasHooks(self.problems, self._names).install(self._patches))
                self._part("Keras's checkpoints", lambda: self._checkpoints.install_keras(self._patches))
        except Exception as error:  # noqa: BLE001 - whatever an unknown version does, the import must go on
            self.problems.append(f"{name} is not hooked: {type(error).__name__}: {error}"[:500])
        self.problems.extend(f"not hooked: {target}" for target in self._patches.missing[missing:])

    def _hook_tensorflow(self, module: Any) -> GraphMarks:
        """Hook each part by itself: a version that moved what one of them needs keeps the others."""
        from . import results, saved_model
        from .collectives import CollectiveHooks
        from .functions import FunctionHooks
        from .graph import GraphMarks
        from .loops import LoopHooks
        from .traces import TraceHooks

        marks, patches = self._marks or GraphMarks(self._names), self._patches
        # A mark that nobody takes out of what is saved could be loaded only where hpcsampler is.
        if not self._part("saved models", lambda: saved_model.install(patches, self.problems)):
            marks.unavailable = "marks can't be kept out of saved models"
        else:
            self._part("waits inside tf.function", lambda: self._register_mark(module, marks))
        self._part("iterators", lambda: self._hook_iterators(marks))
        self._part("loops over datasets", lambda: LoopHooks(marks).install(patches))
        self._part("tf.function", lambda: FunctionHooks(marks).install(patches))
        self._part("collectives", lambda: CollectiveHooks(marks).install(patches))
        self._part("results", lambda: results.install(patches))
        self._part("traces", lambda: TraceHooks(self._names, self.incidents).install(patches))
        self._part("checkpoints", lambda: self._checkpoints.install_tensorflow(patches))
        return marks

    def _part(self, what: str, install: Callable[[], Any]) -> Any:
        """What `install()` returns; None, and noted as missing, if it fails."""
        try:
            return install()
        except Exception as error:  # noqa: BLE001 - whatever an unknown version does, the import must go on
            self._patches.missing.append(f"{what} ({type(error).__name__}: {error})"[:300])
            return None

    def _register_mark(self, module: Any, marks: GraphMarks) -> None:
        from ...ext import _events
        from .graph import framework_library

        try:
            _events.register_graph_mark(framework_library(module))
            marks.try_out()
        except Exception as error:
            marks.unavailable = str(error) or type(error).__name__
            raise

    def _hook_iterators(self, marks: GraphMarks) -> None:
        from ..pipeline import PipelineReader
        from .iterators import IteratorHooks

        iterators = IteratorHooks(self._names, marks)
        iterators.install(self._patches)
        reader = self._part("stages of the input pipeline", lambda: PipelineReader(iterators.open_iterators))
        if reader is not None and reader.unavailable:
            self._patches.missing.append(reader.unavailable)
        else:
            self.pipeline = reader
