"""The table of settings: complete, and the documentation shows it as it is."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import gputrace
from gputrace import settings
from gputrace.settings import Settings
from gputrace.settings_table import SETTINGS, markdown

ROOT = Path(__file__).resolve().parent.parent
#: Not read from outside: they follow from others, or say which command this is.
DERIVED = {"agent", "sends_spans", "sends_metrics", "sends_logs"}
#: For gputrace's own tests, and what it tells workers of Ray and of model servers.
INTERNAL = {
    "GPUTRACE_RAISE_FAULTS",
    "GPUTRACE_RAY_SETUP_HOOK",
    "GPUTRACE_RAY_SETTINGS",
    "GPUTRACE_SERVER_MARK",
}


def test_every_argument_of_configure_is_described():
    arguments = [one.argument for one in SETTINGS if one.argument]
    assert sorted(arguments) == sorted(inspect.signature(gputrace.configure).parameters)
    described = inspect.getdoc(gputrace.configure)
    assert [name for name in arguments if not re.search(rf"^    {name}: ", described, re.MULTILINE)] == []


def test_every_field_is_described():
    assert {one.field for one in SETTINGS if one.field} == {one.name for one in fields(Settings)} - DERIVED
    assert [one.name for one in fields(Settings) if one.default is MISSING] == []


def test_every_variable_that_the_code_names_is_described():
    named = {
        name
        for folder in ("gputrace", "exporters", "grafana", "integrations")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"\bGPUTRACE_[A-Z_]+\b", path.read_text())
    }
    assert named - INTERNAL == {
        one.variable for one in SETTINGS if one.variable and "GPUTRACE" in one.variable
    }


def test_what_is_given_can_be_read():
    for one in SETTINGS:
        assert (one.argument is None) or (one.given is not None), one
        assert one.field or not (one.given or one.text), one


@pytest.mark.parametrize(
    "one", [one for one in SETTINGS if one.variable and one.text], ids=lambda one: one.variable
)
def test_an_empty_variable_says_nothing(one):
    assert settings.read(environment={one.variable: ""}) == Settings()


@pytest.mark.parametrize(("document", "common_only"), [("README.md", True), ("docs/settings.md", False)])
def test_documents_show_the_table(document, common_only):
    expected = markdown(common_only=common_only)
    assert expected in (ROOT / document).read_text(), f"put this into {document}:\n{expected}"
