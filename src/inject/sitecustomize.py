"""First code of every Python that a program under `hpcsampler run` starts: attach where TensorFlow is imported.

Launchers, shells and helper programs pass their environment on, so any Python may come by here, of any version: this
file keeps to what Python 2.7 can read, imports nothing that isn't loaded anyway, and steps aside before anything else.
"""

import os
import sys

_ATTACHED = "HPCSAMPLER_ATTACHED_PID"
"""Set by the process that attaches: what it starts (data workers, compilers) is part of it and doesn't attach again."""


class _Watch(object):  # noqa: UP004 - Python 2.7 reads this too
    """Attaches right before the code of TensorFlow runs, so that the time of its import is seen, and then is gone.

    Looking whether TensorFlow is installed (`importlib.util.find_spec`) is no import and attaches nothing.
    """

    def find_spec(self, name, path=None, target=None):
        """As any finder; what the other finders say, with an eye on the loader."""
        if name != "tensorflow":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:  # there is none for a mere directory of that name
                    self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader):
        create, execute = loader.create_module, loader.exec_module

        def create_module(spec):
            del loader.create_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _attach()
            return create(spec)

        def exec_module(module):
            del loader.exec_module
            execute(module)
            _tell_wrapt(module)

        # On this one loader: its class, and so whatever reads resources through it, stays what it is.
        loader.create_module, loader.exec_module = create_module, exec_module


def _attach():
    try:
        import hpcsampler
    except ImportError as error:
        _warn("%s can't import it (%s): pip install hpcsampler there" % (sys.executable, error))  # noqa: UP031
        return
    os.environ[_ATTACHED] = str(os.getpid())
    try:
        hpcsampler.attach()
    except Exception as error:  # noqa: BLE001 - the program comes first, whatever is wrong with the sampler
        _warn(repr(error))


def _warn(text):
    if sys.stderr is not None:
        sys.stderr.write("hpcsampler: not attached: " + text + "\n")


def _tell_wrapt(module):
    # `attach()` waits for imports with wrapt's finder, which came too late for the import that was under way already.
    try:
        import wrapt

        wrapt.notify_module_loaded(module)
    except Exception as error:  # noqa: BLE001 - as above
        _warn(repr(error))


def _step_aside():
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)


def _watches():
    return sys.version_info >= (3, 10) and os.environ.get(_ATTACHED, str(os.getpid())) == str(os.getpid())


_step_aside()
if _watches():
    sys.meta_path.insert(0, _Watch())
# The sitecustomize that would have run without this one runs now, under its own name and with its own errors. Where
# there is none, this import fails, and Python takes the failure as what it says: no sitecustomize.
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402, F401
