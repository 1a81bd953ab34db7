"""While people are answered, Python's collector does not look through what stays anyway."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

from bot import app, heap
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


def test_what_was_loaded_is_left_alone_once_people_are_served(
    keyturn: app.Keyturn, monkeypatch: pytest.MonkeyPatch
):
    before = len(gc.get_objects())
    looked_through: list[int] = []

    def serve(*_: object, **__: object) -> None:
        looked_through.append(len(gc.get_objects()))

    monkeypatch.setattr("uvicorn.Server.run", serve)
    with app.listening("127.0.0.1", 0) as listener:
        app.run(keyturn, listener)
    assert keyturn.api.then is heap.settle
    assert before > _MANY
    assert looked_through[0] < before / 10
    gc.unfreeze()
    assert len(gc.get_objects()) > _MANY


def test_the_collector_looks_seldom_while_all_is_loaded_and_as_usual_from_then_on():
    usually = gc.get_threshold()
    heap.prepare()
    loading = gc.get_threshold()
    heap.settle()
    gc.unfreeze()
    assert loading > usually
    assert gc.get_threshold() == usually
