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


def test_the_collector_looks_seldom_while_a_command_is_loaded_and_as_usual_from_then_on():
    usually = gc.get_threshold()
    heap.prepare()
    loading = gc.get_threshold()
    heap.settle()
    gc.unfreeze()
    assert loading > usually
    assert gc.get_threshold() == usually


def test_the_collector_never_looks_while_what_serves_is_loaded():
    usually = gc.get_threshold()
    heap.hold()
    held = gc.isenabled()
    heap.settle()
    gc.unfreeze()
    assert not held
    assert gc.isenabled()
    assert gc.get_threshold() == usually


@pytest.mark.parametrize("words", [["serve"], ["worker", "--site", "ams"]])
def test_what_serves_for_long_holds_the_collector(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
):
    looks: list[bool] = []

    def serve(*_: object, **__: object) -> None:
        looks.append(gc.isenabled())

    monkeypatch.setattr("bot.app.serve", serve)
    monkeypatch.setattr("bot.site_worker.work", serve)
    main(words, standalone_mode=False)
    heap.settle()
    gc.unfreeze()
    assert looks == [False]


def test_a_command_that_ends_does_not_hold_it(tmp_path: Path):
    usually = gc.get_threshold()
    main(["init", str(tmp_path / "policy")], standalone_mode=False)
    looks = gc.isenabled()
    gc.set_threshold(*usually)
    assert looks
