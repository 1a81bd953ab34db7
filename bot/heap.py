"""The heap: what was loaded for good is not gone through again and again by the collector."""

import gc


def settle() -> None:
    """Have Python's collector leave alone all that there is by now.

    To be called once all is built. One look through it takes a tenth of a second, in which nobody
    is answered, and looks come more often the more is asked.
    """
    gc.collect()
    gc.freeze()
