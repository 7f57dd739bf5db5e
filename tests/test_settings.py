"""Settings: which of several wins, and one clear error for each wrong value."""

from __future__ import annotations

from pathlib import Path

import pytest

from gputrace import attribution, settings, settings_values
from gputrace.settings import SettingError, Settings


def read(environment=None, **arguments):
    return settings.read(environment=environment or {}, **arguments)


def test_by_default_files_are_written_under_the_working_directory():
    assert read() == Settings(
        service_name=None,
        endpoint=None,
        data_directory="gputrace-data",
        metric_attributes=(),
        export_interval_s=5.0,
        value_limit=200,
        sends_spans=False,
        sends_metrics=False,
        sends_logs=False,
        disabled=False,
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        # An argument wins over our variable, ours over OpenTelemetry's, that over the default.
        (
            {"export_interval": 1},
            {"GPUTRACE_EXPORT_INTERVAL": "2", "OTEL_METRIC_EXPORT_INTERVAL": "3000"},
            1.0,
        ),
        ({}, {"GPUTRACE_EXPORT_INTERVAL": "2", "OTEL_METRIC_EXPORT_INTERVAL": "3000"}, 2.0),
        ({}, {"OTEL_METRIC_EXPORT_INTERVAL": "3000"}, 3.0),
        ({}, {"GPUTRACE_EXPORT_INTERVAL": "", "OTEL_METRIC_EXPORT_INTERVAL": ""}, 5.0),
    ],
)
def test_precedence_of_the_export_interval(arguments, variables, expected):
    assert read(variables, **arguments).export_interval_s == expected


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ({"metric_attributes": ("tenant",)}, {}, ("tenant",)),
        ({"metric_attributes": ["tenant"]}, {}, ("tenant",)),
        ({"metric_attributes": ()}, {"GPUTRACE_METRIC_ATTRIBUTES": "tenant"}, ()),
        ({}, {"GPUTRACE_METRIC_ATTRIBUTES": "tenant"}, ("tenant",)),
        ({}, {"GPUTRACE_METRIC_ATTRIBUTES": " tenant , "}, ("tenant",)),
        ({}, {"GPUTRACE_METRIC_ATTRIBUTES": ""}, ()),
    ],
)
def test_precedence_of_the_metric_attributes(arguments, variables, expected):
    assert read(variables, **arguments).metric_attributes == expected


BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
URL = "http://collector:4318"


@pytest.mark.parametrize(
    ("arguments", "variables", "folder", "sends"),
    [
        ({}, {}, "gputrace-data", (False, False)),
        ({"endpoint": URL}, {}, None, (True, True)),
        ({}, {BASE: URL}, None, (True, True)),
        ({}, {BASE: ""}, "gputrace-data", (False, False)),
        ({}, {TRACES: URL, METRICS: URL}, None, (True, True)),
        # What has no endpoint would go nowhere: the files take it.
        ({}, {TRACES: URL}, "gputrace-data", (True, False)),
        ({}, {METRICS: URL}, "gputrace-data", (False, True)),
        # Both where both are asked for.
        ({"endpoint": URL, "data_dir": "here"}, {}, "here", (True, True)),
        ({}, {BASE: URL, "GPUTRACE_DATA_DIR": "there"}, "there", (True, True)),
        ({"data_dir": "here"}, {"GPUTRACE_DATA_DIR": "there"}, "here", (False, False)),
        ({"data_dir": Path("/tmp/here")}, {}, "/tmp/here", (False, False)),  # noqa: S108 - a name only
        ({}, {"GPUTRACE_DATA_DIR": ""}, "gputrace-data", (False, False)),
    ],
)
def test_where_telemetry_goes(arguments, variables, folder, sends):
    found = read(variables, **arguments)
    assert found.data_directory == folder
    assert (found.sends_spans, found.sends_metrics) == sends
    assert found.endpoint == arguments.get("endpoint")


@pytest.mark.parametrize(
    ("arguments", "variables", "sends"),
    [
        ({}, {}, False),
        ({"endpoint": URL}, {}, True),
        ({}, {BASE: URL}, True),
        ({}, {TRACES: URL, METRICS: URL}, False),
        ({}, {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": URL}, True),
    ],
)
def test_where_log_events_go(arguments, variables, sends):
    assert read(variables, **arguments).sends_logs is sends


@pytest.mark.parametrize(
    ("value", "disabled"), [("true", True), (" TRUE ", True), ("false", False), ("1", False)]
)
def test_the_sdk_is_disabled_as_opentelemetry_says(value, disabled):
    assert read({"OTEL_SDK_DISABLED": value}).disabled is disabled


def test_the_other_settings():
    assert read(service_name="shop").service_name == "shop"
    assert read({"GPUTRACE_ATTRIBUTE_VALUE_LIMIT": "7"}).value_limit == 7
    assert (read().set_limit, read({"GPUTRACE_ATTRIBUTE_SET_LIMIT": " 70 "}).set_limit) == (1500, 70)
    assert read(prices=Path("prices.toml")).prices == "prices.toml"


@pytest.mark.parametrize(
    ("arguments", "variables", "features", "models"),
    [
        ({}, {}, (), ()),
        ({"features": ["a", "b", "a"], "models": ("m",)}, {}, ("a", "b"), ("m",)),
        ({"features": (one for one in "ab")}, {"GPUTRACE_FEATURES": "c"}, ("a", "b"), ()),
        ({}, {"GPUTRACE_FEATURES": "a, b,", "GPUTRACE_MODELS": " m "}, ("a", "b"), ("m",)),
    ],
)
def test_features_and_models_are_declared_up_front(arguments, variables, features, models):
    found = read(variables, **arguments)
    assert (found.features, found.models) == (features, models)


KEY = "a-key-that-services-share"


@pytest.mark.parametrize(
    ("arguments", "variables", "keys", "entries"),
    [
        ({"baggage_key": KEY}, {"GPUTRACE_BAGGAGE_KEY": "x" * 16}, (KEY.encode(),), ()),
        ({}, {"GPUTRACE_BAGGAGE_KEY": f"{'x' * 16}, {KEY},"}, (b"x" * 16, KEY.encode()), ()),
        (
            {"trusted_baggage": ["gputrace.tenant"], "trust": bool},
            {"GPUTRACE_TRUSTED_BAGGAGE": "gputrace.feature"},
            (),
            ("gputrace.tenant",),
        ),
        (
            {"baggage_key": KEY},
            {"GPUTRACE_TRUSTED_BAGGAGE": "gputrace.feature, gputrace.stage"},
            (KEY.encode(),),
            ("gputrace.feature", "gputrace.stage"),
        ),
    ],
)
def test_who_is_trusted_about_what(arguments, variables, keys, entries):
    found = read(variables, **arguments)
    assert (found.baggage_keys, found.trusted_baggage) == (keys, entries)
    assert found.trust is arguments.get("trust")


def test_baggage_may_bring_what_work_is_billed_to():
    assert set(settings_values.BAGGAGE_ENTRIES) == set(attribution.ATTRIBUTE_OF_FIELD.values())


@pytest.mark.parametrize("given", ["hunter2", f"{KEY},hunter2", 20, b"hunter2-hunter2-hunter2", " , "])
def test_a_key_is_never_shown(given):
    for arguments, variables in (({"baggage_key": given}, {}), ({}, {"GPUTRACE_BAGGAGE_KEY": given})):
        with pytest.raises(SettingError, match=r"^(baggage_key|GPUTRACE_BAGGAGE_KEY)\b") as refused:
            read(variables, **arguments)
        assert "hunter2" not in str(refused.value)
        assert KEY not in str(refused.value)
    assert KEY not in repr(read(baggage_key=KEY))


def test_a_setting_that_there_is_not():
    with pytest.raises(TypeError, match=r"^gputrace has no setting servicename$"):
        read(servicename="shop")


async def asks_somebody(scope):
    return True


class AsksSomebody:
    async def __call__(self, scope):
        return True


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ({}, {}, ()),
        ({"outcomes": ["solved", "sold"]}, {"GPUTRACE_OUTCOMES": "other"}, ("solved", "sold")),
        ({"outcomes": ()}, {"GPUTRACE_OUTCOMES": "other"}, ()),
        ({}, {"GPUTRACE_OUTCOMES": " solved , sold,"}, ("solved", "sold")),
    ],
)
def test_precedence_of_the_declared_outcomes(arguments, variables, expected):
    assert read(variables, **arguments).outcomes == expected


def test_what_nobody_names_is_billed_to_what_the_environment_says():
    assert settings.scope({}) == {}
    assert settings.scope({"GPUTRACE_FEATURE": "nightly", "GPUTRACE_TENANT": ""}) == {"feature": "nightly"}
    assert settings.scope({"GPUTRACE_TENANT": "acme"}) == {"tenant": "acme"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outcomes": "solved"}, "outcomes='solved' must be a sequence of names"),
        ({"outcomes": 5}, "outcomes=5 must be a sequence of names"),
        ({"outcomes": ("",)}, "outcomes: '' must be a text that is not empty"),
        ({"outcomes": (3,)}, "outcomes: 3 must be a text that is not empty"),
        ({"outcomes": ("__mine",)}, "outcomes: '__mine' starts with '__', which is reserved"),
        ({"service_name": ""}, "service_name='' must be a text that is not empty"),
        ({"service_name": 3}, "service_name=3 must be a text that is not empty"),
        ({"endpoint": "localhost:4318"}, "endpoint='localhost:4318' must be a URL that starts with http"),
        ({"endpoint": "grpc://localhost:4317"}, "endpoint='grpc://localhost:4317' must be a URL"),
        ({"endpoint": "http://"}, "endpoint='http://' must be a URL"),
        ({"endpoint": ""}, "endpoint='' must be a URL"),
        ({"endpoint": 4318}, "endpoint=4318 must be a URL"),
        ({"data_dir": ""}, "data_dir='' must be a text that is not empty"),
        ({"data_dir": 5}, "data_dir=5 must be a text that is not empty"),
        ({"metric_attributes": "tenant"}, "metric_attributes='tenant' must be a sequence of names"),
        ({"metric_attributes": 5}, "metric_attributes=5 must be a sequence of names"),
        ({"metric_attributes": ("tenant", "user")}, "metric_attributes: 'user' is not .* known: tenant"),
        ({"metric_attributes": (1,)}, "metric_attributes: 1 is not an attribute"),
        ({"export_interval": 0}, "export_interval=0 must come to at least 0.01 seconds"),
        ({"export_interval": -1}, "export_interval=-1 must"),
        ({"export_interval": float("nan")}, "export_interval=nan must"),
        ({"export_interval": float("inf")}, "export_interval=inf must"),
        ({"export_interval": "5"}, "export_interval='5' is not a number"),
        ({"export_interval": True}, "export_interval=True is not a number"),
        ({"prices": ""}, "prices='' must be a text that is not empty"),
        ({"features": "search"}, "features='search' must be a sequence of names"),
        ({"features": ("search", "")}, "features: '' must be a text that is not empty"),
        ({"features": (7,)}, "features: 7 must be a text"),
        ({"models": ("__other__",)}, "models: '__other__' starts with '__', which is reserved"),
        ({"trusted_baggage": "gputrace.feature"}, "trusted_baggage='gputrace.feature' must be a sequence"),
        ({"trusted_baggage": ("feature",)}, "trusted_baggage: 'feature' is not .* known: gputrace.feature,"),
        ({"trusted_baggage": ("user.id",)}, "trusted_baggage: 'user.id' is not an entry that baggage may"),
        ({"trusted_baggage": ("gputrace.stage",)}, "trusted_baggage=.* nobody is believed: give trust="),
        ({"trust": bool}, "trust=<class 'bool'> says who is believed, .* give trusted_baggage="),
        ({"trust": "10.0.0.0/8"}, "trust='10.0.0.0/8' must be a function"),
        ({"trust": asks_somebody}, "trust=<function asks_somebody at .* must not be async"),
        ({"trust": AsksSomebody()}, "trust=<.*AsksSomebody object at .* must not be async"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(arguments, message):
    with pytest.raises(SettingError, match=message) as refused:
        read(**arguments)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GPUTRACE_EXPORT_INTERVAL", "soon", "is not a number"),
        ("GPUTRACE_EXPORT_INTERVAL", "0", "must come to at least 0.01 seconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "is not a number"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "5", "must come to at least 0.01 seconds"),
        ("GPUTRACE_ATTRIBUTE_VALUE_LIMIT", "0", "must be a whole number of at least 1"),
        ("GPUTRACE_ATTRIBUTE_VALUE_LIMIT", "-3", "must be a whole number of at least 1"),
        ("GPUTRACE_ATTRIBUTE_VALUE_LIMIT", "many", "must be a whole number of at least 1"),
        ("GPUTRACE_ATTRIBUTE_VALUE_LIMIT", "1.5", "must be a whole number of at least 1"),
        ("GPUTRACE_ATTRIBUTE_SET_LIMIT", "0", "must be a whole number of at least 1"),
        ("GPUTRACE_ATTRIBUTE_SET_LIMIT", "9" * 5000, "must be a whole number of at least 1"),
        ("GPUTRACE_ATTRIBUTE_SET_LIMIT", "²", "must be a whole number of at least 1"),
        ("GPUTRACE_HARDWARE_METRICS", "no", "must be true or false"),
        ("GPUTRACE_DATA_DIR", " ", "must be a text that is not empty"),
        (BASE, "collector:4318", "must be a URL that starts with http"),
        (TRACES, "collector:4318", "must be a URL that starts with http"),
        (METRICS, "collector:4318", "must be a URL that starts with http"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name_and_value(name, value, message):
    with pytest.raises(SettingError, match=f"^{name}='{value}' {message}"):
        read({name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GPUTRACE_FEATURES", "a,__b", ": '__b' starts with '__'"),
        ("GPUTRACE_MODELS", "__b", ": '__b' starts with '__'"),
        (
            "GPUTRACE_TRUSTED_BAGGAGE",
            "gputrace.user",
            ": 'gputrace.user' is not an entry that baggage may bring",
        ),
    ],
)
def test_a_wrong_name_in_a_variable_is_refused(name, value, message):
    with pytest.raises(SettingError, match=f"^{name}{message}"):
        read({name: value})


@pytest.mark.parametrize("name", ["GPUTRACE_OUTCOMES", "GPUTRACE_FEATURE", "GPUTRACE_TENANT"])
def test_a_reserved_name_in_a_variable_is_refused_by_the_variables_name(name):
    with pytest.raises(SettingError, match=f"^{name}: '__mine' starts with '__', which is reserved"):
        read({name: "__mine"})


def test_a_wrong_metric_attribute_in_the_variable_is_refused_by_name():
    with pytest.raises(SettingError, match=r"^GPUTRACE_METRIC_ATTRIBUTES: 'user' is not an attribute"):
        read({"GPUTRACE_METRIC_ATTRIBUTES": "tenant,user"})


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("GPUTRACE_DATA_DIR", "from-the-process")
    assert settings.read().data_directory == "from-the-process"
