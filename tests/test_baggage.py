"""Baggage: what goes out, and that nothing is believed of what comes in unless its source was declared."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import string

import pytest
from hypothesis import example, given, strategies as st

import gputrace
from gputrace import attribution, baggage, baggage_header, baggage_signature, faults, settings
from gputrace.attribution import FIELDS
from gputrace.testing import Recorder

KEY = "a-key-that-services-share"
OTHER_KEY = "another-key-of-that-length"
NOW = 1_800_000_000
PEER = {"type": "http", "client": ("10.0.0.7", 4711), "headers": []}
ALL = tuple(attribution.ATTRIBUTE_OF_FIELD.values())


@pytest.fixture(autouse=True)
def _nothing_declared(monkeypatch):
    for name in ("GPUTRACE_BAGGAGE_KEY", "GPUTRACE_TRUSTED_BAGGAGE", "GPUTRACE_METRIC_ATTRIBUTES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(baggage, "_policy", None)
    monkeypatch.setattr(baggage, "clock", lambda: NOW)
    baggage.reset()
    faults.reset()


def declare(**given_settings):
    baggage.use(settings.read(environment={}, **given_settings))


def request(*headers, scope=PEER):
    """What a request with these `baggage` headers is billed to, where the application says nothing."""
    raw = [(b"host", b"shop"), *((b"baggage", one.encode("latin-1")) for one in headers)]
    with gputrace.attribute_to(**baggage.incoming(raw, scope)):
        billed = gputrace.current().attribution
        return {name: getattr(billed, name) for name in FIELDS if getattr(billed, name) is not None}


def sent(header="", **fields):
    headers = {"baggage": header} if header else {}
    with gputrace.attribute_to(**fields):
        gputrace.inject(headers)
    return headers.get("baggage", "")


def signed_header(entries, key=KEY, at=NOW):
    """As it stands on the wire, written without the code under test."""
    text = "\n".join(
        ["gputrace-baggage-1", str(at), *sorted(f"{name}={value}" for name, value in entries.items())]
    )
    digest = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    members = [*(f"{name}={value}" for name, value in entries.items()), f"gputrace.signature=1.{at}.{digest}"]
    return ",".join(members)


def counted():
    return {row["gputrace.sdk.reason"]: count for row, count in baggage.unbelieved()}


POLICIES = {
    "nothing": {},
    "key": {"baggage_key": KEY},
    "predicate": {"trusted_baggage": ALL, "trust": lambda scope: scope["client"][0] == "10.0.0.1"},
    "both": {"trusted_baggage": ALL, "trust": lambda scope: False, "baggage_key": KEY},
}
FORGED = "gputrace.feature=evil,gputrace.tenant=evil,tenant=evil,feature=evil,user.id=1"


# --- what clients send is not believed


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "header",
    [
        FORGED,
        signed_header({"gputrace.feature": "evil", "gputrace.tenant": "evil"}, key=OTHER_KEY),
        f"{FORGED},gputrace.signature=1.{NOW}.{'0' * 64}",
        f"{FORGED},gputrace.signature=none",
        f"{FORGED},gputrace.signature=1.{NOW}.{'0' * 63}é",
    ],
)
def test_honeycomb_opentelemetry_dotnet_167_a_forged_header_changes_nothing(policy, header):
    declare(**POLICIES[policy])
    assert request(header) == {}
    assert sum(counted().values()) == 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "header",
    [
        signed_header({"gputrace.feature": "search"}) + ",pad=" + "x" * 8192,
        signed_header({"gputrace.feature": "search"}) + ",a=b" * 180,
        signed_header({"gputrace.feature": "search", **{f"gputrace.x{n}": "y" for n in range(16)}}),
        signed_header({"gputrace.feature": "x" * 129}),
        "gputrace.feature=" + "%41" * 5000,
    ],
)
def test_honeycomb_opentelemetry_dotnet_167_an_oversized_header_is_dropped_without_error(policy, header):
    declare(**POLICIES[policy])
    assert request(header) == {}
    assert sum(counted().values()) == 1


MALFORMED = {
    "no value": "gputrace.feature",
    "empty": "gputrace.feature=",
    "twice": "gputrace.feature=search,gputrace.feature=evil",
    "reserved": "gputrace.feature=__none__",
    "blanks": "gputrace.feature=%20",
    "line break": "gputrace.feature=a%0Ab",
    "carriage return": "gputrace.feature=a%0Dset-cookie",
    "null": "gputrace.feature=a%00",
    "escape": "gputrace.feature=%1B%5B2J",
    "right to left": "gputrace.feature=%E2%80%AEevil",
    "half a character": "gputrace.feature=%C3",
    "surrogate": "gputrace.feature=%ED%A0%80",
    "no hexadecimal": "gputrace.feature=%zz",
    "cut off": "gputrace.feature=a%2",
    "quote": 'gputrace.feature="a"',
    "not ascii": "gputrace.feature=é",
    "a blank of Unicode": "\xa0gputrace.feature=a",
    "a name with a blank": "gputrace.fea ture=a",
    "a name in capitals": "gputrace.FEATURE=a",
    "no name": "gputrace.=a",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_honeycomb_opentelemetry_dotnet_167_a_malformed_header_changes_nothing(name):
    """Not even for a caller that is trusted: one wrong entry, and none is taken."""
    declare(trusted_baggage=ALL, trust=lambda scope: True)
    assert request("gputrace.tenant=acme") == {"tenant": "acme"}
    assert request(f"gputrace.tenant=acme,{MALFORMED[name]}") == {}
    assert counted() == {"malformed": 1}


@given(
    header=st.binary(max_size=300)
    | st.text(st.sampled_from("gputrace.featuretenantsignature=,;% \t%201+\x00\xff"), max_size=200).map(
        lambda text: text.encode("latin-1")
    )
)
@example(header=b"gputrace.feature=evil")
def test_whatever_comes_in_raises_nothing_and_changes_nothing(header):
    for policy in ("nothing", "key"):
        declare(**POLICIES[policy])
        assert baggage.incoming([(b"Baggage", header), (b"\xff", b"")], None) == {}


@given(data=st.data(), character=st.sampled_from(string.printable))
def test_whoever_changes_a_signed_header_changes_nothing_that_is_billed(data, character):
    declare(baggage_key=KEY)
    header = signed_header({"gputrace.feature": "search", "gputrace.tenant": "acme"})
    at = data.draw(st.integers(0, len(header) - 1))
    changed = header[:at] + character + header[at + 1 :]
    assert request(changed) in ({}, {"feature": "search", "tenant": "acme"})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("feature=search", "feature=evil"),
        ("gputrace.tenant=acme,", ""),
        ("gputrace.tenant=acme,", "gputrace.tenant=acme,gputrace.model=large,"),
        ("gputrace.tenant", "gputrace.model"),
        (f"1.{NOW}", f"1.{NOW + 1}"),
        (f"1.{NOW}", f"2.{NOW}"),
        (f"1.{NOW}", "1.\u0661".encode().decode("latin-1")),
    ],
)
def test_a_signature_covers_every_entry_and_its_time(old, new):
    declare(baggage_key=KEY)
    header = signed_header({"gputrace.feature": "search", "gputrace.tenant": "acme"})
    assert request(header) == {"feature": "search", "tenant": "acme"}
    assert old in header
    assert request(header.replace(old, new)) == {}


@pytest.mark.parametrize(
    ("made_at", "believed"),
    [(NOW - 300, True), (NOW - 301, False), (NOW + 60, True), (NOW + 61, False), (0, False)],
)
def test_a_signature_ages(made_at, believed):
    declare(baggage_key=KEY)
    header = signed_header({"gputrace.feature": "search"}, at=made_at)
    assert request(header) == ({"feature": "search"} if believed else {})
    assert counted() == ({} if believed else {"expired": 1})


# --- what is believed


def test_what_is_sent_is_what_arrives():
    declare(baggage_key=KEY, metric_attributes=("tenant",))
    fields = {
        "feature": "support, answer; 50 % off",
        "tenant": "Müller & Söhne",
        "model": "c++",
        "stage": "a=b",
    }
    header = sent(**fields)
    assert header.isascii()
    assert request(header) == fields
    assert counted() == {}


USABLE = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]) | st.just(" "), min_size=1, max_size=128
)


@given(fields=st.dictionaries(st.sampled_from(FIELDS), USABLE.filter(baggage_header.usable), min_size=1))
def test_every_usable_value_arrives(fields):
    declare(baggage_key=KEY, metric_attributes=("tenant",))
    assert request(sent(**fields)) == fields


def test_the_form_on_the_wire():
    """Services of several versions must understand each other: a change needs a new version in it."""
    declare(baggage_key=KEY, metric_attributes=("tenant",))
    entries = {"gputrace.feature": "search", "gputrace.tenant": "acme"}
    assert sent(feature="search", tenant="acme") == signed_header(entries)


def test_entries_of_a_later_version_are_signed_too_and_not_taken():
    declare(baggage_key=KEY)
    assert request(signed_header({"gputrace.feature": "search", "gputrace.user_id": "7"})) == {
        "feature": "search"
    }


def test_entries_of_others_and_properties_are_no_matter():
    declare(baggage_key=KEY)
    header = signed_header({"gputrace.feature": "search"}).replace("=search", " = search ; ttl=5")
    assert request(f"user=7;secret , {header} ,, other=%zz") == {"feature": "search"}


def test_several_headers_are_one():
    declare(baggage_key=KEY)
    entry, signature = signed_header({"gputrace.feature": "search"}).split(",")
    assert request(entry, "other=1", signature) == {"feature": "search"}
    assert request(entry, signature, entry) == {}


def test_a_key_is_changed_without_losing_a_request():
    """Step by step: at every moment some services have taken a step that others have yet to take."""
    steps = (KEY, f"{KEY},{OTHER_KEY}", f"{OTHER_KEY}, {KEY}", OTHER_KEY)
    sent_at = {}
    for keys in steps:
        declare(baggage_key=keys)
        sent_at[keys] = sent(feature="search")
    for one, other in ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)):
        declare(baggage_key=steps[one])
        assert request(sent_at[steps[other]]) == {"feature": "search"}
    declare(baggage_key=OTHER_KEY)
    assert request(sent_at[KEY]) == {}
    assert counted() == {"forged": 1}


def test_a_predicate_says_by_the_request_who_is_believed():
    asked = []

    def trust(scope):
        asked.append(scope)
        return scope["client"][0].startswith("10.")

    declare(trusted_baggage=("gputrace.feature", "gputrace.tenant"), trust=trust)
    header = "gputrace.feature=search,gputrace.tenant=acme,gputrace.model=theirs"
    assert request(header) == {"feature": "search", "tenant": "acme"}
    assert request(header, scope={**PEER, "client": ("192.0.2.1", 1)}) == {}
    assert asked == [PEER, {**PEER, "client": ("192.0.2.1", 1)}]
    assert request(header, scope=None) == {}
    assert len(asked) == 2
    assert counted() == {"refused": 2}


@pytest.mark.parametrize("answer", [None, 1, "yes", [True], re.match("a", "a")])
def test_a_predicate_says_true_and_nothing_like_it(answer):
    declare(trusted_baggage=ALL, trust=lambda scope: answer)
    assert request("gputrace.feature=search") == {}
    assert counted() == {"refused": 1}


def test_a_predicate_that_fails_believes_nobody(monkeypatch, caplog):
    monkeypatch.delenv(faults.RAISE_VARIABLE)
    declare(trusted_baggage=ALL, trust=lambda scope: scope["peer"])
    assert request("gputrace.feature=search") == {}
    assert counted() == {"refused": 1}
    assert "could not ask trust= about a request" in caplog.text


def test_a_wrong_signature_is_not_believed_from_anyone():
    declare(trusted_baggage=ALL, trust=lambda scope: True, baggage_key=KEY)
    assert request("gputrace.feature=search") == {"feature": "search"}
    assert request(signed_header({"gputrace.feature": "search"}, key=OTHER_KEY)) == {}
    assert request(signed_header({"gputrace.feature": "search"}), scope=None) == {"feature": "search"}


def test_of_what_is_signed_the_declared_entries_are_taken():
    header = signed_header({"gputrace.feature": "search", "gputrace.tenant": "acme"})
    declare(baggage_key=KEY, trusted_baggage=("gputrace.tenant",))
    assert request(header) == {"tenant": "acme"}


def test_baggage_ranks_below_every_explicit_value():
    declare(baggage_key=KEY)
    header = signed_header(
        {"gputrace.feature": "theirs", "gputrace.tenant": "theirs", "gputrace.stage": "theirs"}
    )
    with Recorder(), gputrace.attribute_to(feature="outer"):
        assert request(header) == {"feature": "outer", "tenant": "theirs", "stage": "theirs"}
        with gputrace.span("inner", tenant="inner"):
            assert request(header) == {"feature": "outer", "tenant": "inner", "stage": "theirs"}
    with gputrace.attribute_to(**baggage.incoming([(b"baggage", header.encode())])):
        gputrace.current().set(stage="endpoint")
        with gputrace.attribute_to(feature="endpoint"):
            billed = gputrace.current().attribution
    assert (billed.feature, billed.tenant, billed.stage) == ("endpoint", "theirs", "endpoint")


# --- what is sent


def test_without_a_key_it_is_sent_unsigned():
    declare()
    assert sent(feature="search", model="minilm") == "gputrace.feature=search,gputrace.model=minilm"


@pytest.mark.parametrize(
    ("opted_in", "travels"),
    [
        ({}, False),
        ({"metric_attributes": ("tenant",)}, True),
        ({"trusted_baggage": ("gputrace.tenant",), "trust": lambda scope: False}, True),
        ({"trusted_baggage": ("gputrace.feature",), "trust": lambda scope: False}, False),
    ],
)
def test_a_tenant_is_sent_where_it_was_opted_in(opted_in, travels):
    declare(baggage_key=KEY, **opted_in)
    assert ("tenant" in sent(feature="search", tenant="acme")) is travels


def test_others_keep_their_entries_and_none_of_ours_is_passed_on():
    declare()
    header = " user=7;secret,, gputrace.feature=evil , gputrace.signature=1.2.3,x=%zz"
    assert sent(header, feature="search") == "user=7;secret,x=%zz,gputrace.feature=search"
    headers = {"Baggage": header, "baggage": "gputrace.tenant=evil", "accept": "*/*"}
    gputrace.inject(headers)
    assert headers == {"accept": "*/*", "Baggage": "user=7;secret,x=%zz"}
    headers = {"baggage": "gputrace.tenant=evil"}
    gputrace.inject(headers)
    assert headers == {}


@pytest.mark.requires("httpx")
def test_headers_of_httpx_take_it():
    import httpx

    declare(baggage_key=KEY)
    headers = httpx.Headers([("BAGGAGE", "a=1"), ("Baggage", "b=2")])
    with gputrace.attribute_to(feature="search"):
        gputrace.inject(headers)
    assert headers.get_list("baggage") == ["a=1,b=2," + signed_header({"gputrace.feature": "search"})]


@pytest.mark.parametrize("value", ["x" * 129, "a\nb", " a", "a ", "\u202ea", ""])
def test_what_would_not_be_believed_is_not_sent(value, caplog):
    declare(baggage_key=KEY)
    for _ in range(2):
        assert request(sent(feature=value, model="minilm")) == {"model": "minilm"}
    assert len(caplog.records) == 1
    assert "gputrace.feature=" in caplog.text


@pytest.mark.parametrize("header", ["a=" + "x" * 8150, ",".join(["a=b"] * 179)])
def test_a_full_header_stays_as_it_is(header, caplog):
    declare(baggage_key=KEY)
    assert sent(f"{header},gputrace.tenant=evil", feature="search") == header
    assert "baggage header is full" in caplog.text


@pytest.mark.parametrize("carrier", [None, 5, {"baggage": b"x"}])
def test_a_carrier_that_is_none_raises_nothing(carrier, monkeypatch):
    monkeypatch.delenv(faults.RAISE_VARIABLE)
    declare()
    with gputrace.attribute_to(feature="search"):
        gputrace.inject(carrier)
    assert faults.count() == 1


# --- what is said of it


def test_each_reason_is_counted_each_time_and_logged_once_without_the_header(caplog):
    declare(baggage_key=KEY)
    for _ in range(3):
        request("gputrace.feature=evil")
        request(signed_header({"gputrace.feature": "evil"}, key=OTHER_KEY))
        request(signed_header({"gputrace.feature": "evil"}, at=1))
    assert counted() == {"unsigned": 3, "forged": 3, "expired": 3}
    assert len(caplog.records) == 3
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "evil" not in caplog.text


def test_baggage_of_others_is_not_counted():
    declare()
    assert request("user=7", "x" * 9000) == {}
    assert request() == {}
    assert counted() == {}


def test_the_variables_hold_where_nobody_configures(monkeypatch):
    monkeypatch.setenv("GPUTRACE_BAGGAGE_KEY", KEY)
    monkeypatch.setenv("GPUTRACE_TRUSTED_BAGGAGE", "gputrace.feature")
    assert request(signed_header({"gputrace.feature": "search", "gputrace.stage": "s"})) == {
        "feature": "search"
    }
    assert baggage_signature.ENTRY in sent(feature="search")


def test_a_wrong_variable_fails_no_request(monkeypatch, caplog):
    monkeypatch.setenv("GPUTRACE_BAGGAGE_KEY", "hunter2")
    for _ in range(2):
        assert request(signed_header({"gputrace.feature": "search"}, key="hunter2")) == {}
        assert sent(feature="search") == "gputrace.feature=search"
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "GPUTRACE_BAGGAGE_KEY: a key of 7 bytes is too short" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_forked_child_counts_its_own(run_python):
    result = run_python(
        "import os\n"
        "import gputrace\n"
        "from gputrace import baggage\n"
        "baggage.incoming([(b'baggage', b'gputrace.feature=evil')])\n"
        "if not (child := os.fork()):\n"
        "    print(baggage.unbelieved(), flush=True)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(baggage.unbelieved())\n"
    )
    assert result.stdout == "[]\n[({'gputrace.sdk.reason': 'undeclared'}, 1)]\n"
