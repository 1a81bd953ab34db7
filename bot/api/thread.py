"""The one thread in which a request is seen to, from whose token it is to what it is answered.

FastAPI would hand each function that may wait to a thread of its own, and come back to the event
loop between them: that took longer than what most of them do.
"""

from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.routing import APIRoute

from bot.aside import done_in

T = TypeVar("T")

# So many requests are seen to at once. More wait their turn.
_MOST = 40


def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST, thread_name_prefix="api")


class InOneThread(APIRoute):
    """A route whose handler, with all that it depends on, is done in one thread."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        super().__init__(path, _at_once(endpoint), **more)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handed_over(request: Request) -> Response:
            # It is there: the guard has read it.
            await request.body()
            pool: ThreadPoolExecutor = request.app.state.threads
            return await done_in(pool, partial(_done, handle(request)))

        return handed_over


def _at_once(endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return it as FastAPI calls it where it is: as what does not wait."""

    @wraps(endpoint)
    async def called(*args: Any, **named: Any) -> Any:
        return endpoint(*args, **named)

    return called


def _done(work: Coroutine[Any, Any, T]) -> T:
    """Do what waits for nothing of the event loop, without one."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("a handler of the API waits for the event loop, in a thread without one")
