"""The file of budgets, and what is wrong with one."""

from __future__ import annotations

import pytest

from gputrace import settings

GOOD = '[[budget]]\nfeature = "chat"\ncurrency = "USD"\nper_month = 2500\n'


def test_a_file_of_budgets_is_read(tmp_path):
    file = tmp_path / "budgets.toml"
    file.write_text(GOOD + GOOD.replace("USD", "EUR").replace("2500", "99.5"))
    expected = (("chat", "USD", 2500.0), ("chat", "EUR", 99.5))
    assert settings.read(budgets=file).budgets == expected
    assert settings.read(environment={"GPUTRACE_BUDGETS": str(file)}).budgets == expected
    assert settings.read(environment={}).budgets == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[budget", "budgets.toml"),
        ("other = 1", "must hold [[budget]] entries"),
        (GOOD + GOOD, "two budgets of one feature"),
        (GOOD.replace("2500", "-1"), "budget 1: per_month: -1 must be a number above 0"),
        (GOOD.replace("2500", "inf"), "per_month: inf"),
        (GOOD.replace("2500", "true"), "per_month: True"),
        (GOOD.replace('"USD"', '"dollars"'), "currency: 'dollars' must be a code"),
        (GOOD.replace('"chat"', '" "'), "feature: ' ' must be the name"),
        (GOOD.replace("per_month", "per_week"), "must have the keys currency, feature, per_month"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, said):
    file = tmp_path / "budgets.toml"
    file.write_text(text)
    with pytest.raises(settings.SettingError) as raised:
        settings.read(budgets=str(file))
    assert said in str(raised.value)
    assert str(file) in str(raised.value)


def test_a_missing_file_is_named():
    with pytest.raises(settings.SettingError, match=r"/nowhere/budgets\.toml: No such file"):
        settings.read(environment={"GPUTRACE_BUDGETS": "/nowhere/budgets.toml"})


def test_budgets_and_the_version_are_exported(run_python, read_files, tmp_path):
    """Both are gauges that boards read beside the counters."""
    (tmp_path / "budgets.toml").write_text(GOOD)
    run_python(
        """
import gputrace
gputrace.configure(data_dir="data", budgets="budgets.toml")
with gputrace.span("work", feature="chat"):
    pass
"""
    )
    files = read_files(tmp_path / "data")
    assert files.total("gputrace.budget", feature="chat", currency="USD") == 2500
    [version] = files.values("gputrace.build.info")
    assert dict(version[1])["gputrace.build.version"]
