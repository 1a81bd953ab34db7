"""While people are answered, Python's collector does not look through what stays anyway."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

from bot import app, heap
from bot.__main__ import main
from bot.settings import Settings
from tests.playground import company

_MANY = 50_000
# Python's own measure.
_USUALLY = (700, 10, 10)


@pytest.fixture(autouse=True)
def _as_usual() -> Generator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_USUALLY)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def keyturn(tmp_path: Path) -> Generator[app.Keyturn]:
    gc.unfreeze()  # what the tests themselves have put aside
    company.found(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text("hosts: {}\n")
    keyturn = app.build(Settings(data=tmp_path / "var", policy=tmp_path / "policy"))
    yield keyturn
    gc.unfreeze()
    keyturn.fleet.close()
    keyturn.database.close()


def test_what_was_loaded_is_left_alone_once_all_of_it_is_made(
    keyturn: app.Keyturn, monkeypatch: pytest.MonkeyPatch
):
    before = len(gc.get_objects())
    looked_through: list[int] = []

    def serve(*_: object, **__: object) -> None:
        settle = keyturn.api.then
        assert settle is not None
        settle()
        looked_through.append(len(gc.get_objects()))

    monkeypatch.setattr("uvicorn.Server.run", serve)
    with app.listening("127.0.0.1", 0) as listener:
        app.run(keyturn, listener)
    assert before > _MANY
    assert looked_through[0] < before / 10
    gc.unfreeze()
    assert len(gc.get_objects()) > _MANY


def test_the_collector_looks_seldom_while_a_command_is_loaded_and_more_often_from_then_on():
    heap.prepare()
    _, _, loading = gc.get_threshold()
    heap.settle()
    gc.unfreeze()
    serving, _, among_all = gc.get_threshold()
    assert loading > among_all
    assert serving > _USUALLY[0]


def test_the_collector_never_looks_while_what_serves_is_loaded():
    heap.hold()
    held = gc.isenabled()
    heap.settle()
    gc.unfreeze()
    assert not held
    assert gc.isenabled()


def test_a_hundred_hosts_are_not_looked_through_ten_times():
    """Each of them leaves some objects behind until its check is over."""
    heap.settle()
    gc.unfreeze()
    looks: list[str] = []

    def note(phase: str, _: object) -> None:
        looks.append(phase)

    gc.callbacks.append(note)
    try:
        left = [[number] for number in range(7_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(left) == 7_000
    assert looks.count("start") <= 1


@pytest.mark.parametrize("words", [["serve"], ["worker", "--site", "ams"]])
def test_what_serves_for_long_holds_the_collector(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
):
    looks: list[bool] = []

    def serve(*_: object, **__: object) -> None:
        looks.append(gc.isenabled())

    monkeypatch.setattr("bot.app.serve", serve)
    monkeypatch.setattr("bot.worker.run_worker", serve)
    main(words, standalone_mode=False)
    heap.settle()
    gc.unfreeze()
    assert looks == [False]


def test_a_command_that_ends_does_not_hold_it(tmp_path: Path):
    main(["init", str(tmp_path / "policy")], standalone_mode=False)
    assert gc.isenabled()
