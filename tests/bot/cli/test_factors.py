"""`keyturn factors`: list second factors, and remove them after a lost key."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bot import app
from bot.__main__ import main
from bot.audit import change_log
from bot.auth import second_factors
from bot.model.keyfile import KeyFileError
from bot.settings import Settings
from tests.policies import write_policy


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An installation in which Olga has a second factor that nobody has confirmed."""
    write_policy(tmp_path / "policy")
    made = Settings(data=tmp_path / "var", policy=tmp_path / "policy")
    monkeypatch.setenv("KEYTURN_DATA", str(made.data))
    monkeypatch.setenv("KEYTURN_POLICY", str(made.policy))
    keyturn = app.build_service(made)
    factor = keyturn.service.factor_enrolment.begin_app_enrolment("olga")
    with keyturn.database.transaction() as tx:
        second_factors.mark_verified(tx, factor, counter=0)
    keyturn.database.close()
    return made


def keyturn(*words: str, typed: str = "") -> str:
    answer = CliRunner().invoke(main, words, input=typed, catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_factors_list_shows_whether_a_second_factor_is_valid(settings: Settings) -> None:
    assert "totp     olga  not confirmed" in keyturn("factors", "list")
    digest = keyturn("factors", "list").split()[0]
    people = settings.policy / "people.yaml"
    named = f"name: Olga Owner, factors: [{digest}],"
    people.write_text(people.read_text().replace("name: Olga Owner,", named))
    assert '"valid": true' in keyturn("factors", "list", "--json")


def test_factors_forget_removes_all_factors_after_the_key_is_lost(settings: Settings) -> None:
    key = settings.data / "secrets.key"
    key.unlink()
    with pytest.raises(KeyFileError, match="another key"):
        app.build_service(settings)
    result = keyturn("factors", "forget", "--reason", "the disk with the key broke", typed="y\n")
    assert "Deleted 1 second factors" in result
    started = app.build_service(settings)
    with started.database.reading() as tx:
        assert second_factors.list_factors(tx, "olga") == []
        entry = change_log.get_last_entry_of_kind(tx, "all factors removed")
    assert entry
    assert entry.facts["reason"] == "the disk with the key broke"
    started.database.close()
