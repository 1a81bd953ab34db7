"""The heap: what is loaded into it, and how often the collector goes through it."""

import gc
import os
import sys
from importlib import import_module

# Of what is made while a check or a change is seen through, nearly nothing is left for the
# collector, and each hundred hosts make enough of it to be looked at ten times by Python's own
# measure: a twentieth of all their work.
_SERVING = (10_000, 10, 10)
# While modules are loaded nearly nothing becomes garbage, and old modules never do.
_WHILE_LOADING = (10_000, 20, 1_000)
# What other libraries load where it is installed, do well without, and we use nothing of:
# paramiko for a word of ssh_config that runs programs, and FastAPI for models of Pydantic 1.
_NEEDLESS = ("invoke", "pydantic.v1")


def prepare() -> None:
    """Have what follows loaded in less time and memory. To be called before anything is loaded."""
    gc.set_threshold(*_WHILE_LOADING)
    # Pydantic would look through all that is installed for plugins, and we want none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for name in _NEEDLESS:
        # Python's own way to say that there is no such module.
        sys.modules.setdefault(name, None)  # pyright: ignore[reportArgumentType, reportCallIssue]


def defer() -> None:
    """Have FastAPI's models of descriptions built when the API is described for the first time.

    To be called before FastAPI is loaded: they take a twentieth of the time until it all is.
    """
    config = import_module("pydantic").BaseModel.model_config
    config["defer_build"] = True
    try:
        import_module("fastapi.openapi.models")
    finally:
        del config["defer_build"]


def hold() -> None:
    """Have Python's collector leave alone what there is, and look at nothing until settle().

    For what is to serve for long. Of two hundred thousand objects that are made while it is
    loaded, one in two hundred is garbage; to find those takes a sixth of a second.
    """
    gc.freeze()
    gc.disable()


def settle() -> None:
    """Have the collector leave alone all that there is by now, and go on with the rest.

    To be called once all is built. One look through it takes a tenth of a second, in which nobody
    is answered, and looks come more often the more is asked.
    """
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(*_SERVING)
    gc.enable()
