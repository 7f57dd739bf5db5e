"""Mutations of what is believed of others, what is sent to them, and of settings."""

from __future__ import annotations

from mutations import Mutation

BAGGAGE = "gputrace/baggage.py"
HEADER = "gputrace/baggage_header.py"
SIGNATURE = "gputrace/baggage_signature.py"
PROPAGATOR = "gputrace/baggage_propagator.py"
SCOPE = "gputrace/attribution.py"
VALUES = "gputrace/settings_values.py"
SETTINGS = "gputrace/settings.py"
CARRYING = "gputrace/carrying.py"
LOGS = "gputrace/logs.py"
TRUST = "tests/test_baggage.py::"
PROPAGATED = "tests/test_baggage_propagator.py::"
FORGED = TRUST + "test_honeycomb_opentelemetry_dotnet_167_a_forged_header_changes_nothing"
OVERSIZED = TRUST + "test_honeycomb_opentelemetry_dotnet_167_an_oversized_header_is_dropped_without_error"
MALFORMED = TRUST + "test_honeycomb_opentelemetry_dotnet_167_a_malformed_header_changes_nothing"
SIGNED = TRUST + "test_a_signature_covers_every_entry_and_its_time"
CARRIED = "tests/tracking/test_carrying.py::"
MUTATIONS = [
    Mutation(
        "trust: everything is believed where nothing is declared",
        BAGGAGE,
        "        if not policy.taken:\n            raise UnbelievedError(UNDECLARED)",
        "        if not policy.taken:\n"
        "            policy = policy._replace(taken=_ENTRIES, trust=lambda _: True)\n"
        "        if False:\n            raise UnbelievedError(UNDECLARED)",
        FORGED,
    ),
    Mutation(
        "trust: any signature will do",
        BAGGAGE,
        "        if fault is not None:\n            raise UnbelievedError(fault)\n",
        "",
        FORGED,
    ),
    Mutation(
        "trust: a wrong signature is believed from whom is trusted",
        BAGGAGE,
        "        if fault is not None:\n            raise UnbelievedError(fault)\n        return\n",
        "        if fault is None:\n            return\n        if policy.trust is None:\n"
        "            raise UnbelievedError(fault)\n",
        TRUST + "test_a_wrong_signature_is_not_believed_from_anyone",
    ),
    Mutation(
        "trust: a key alone lets the unsigned in",
        BAGGAGE,
        "    if policy.trust is None:\n        raise UnbelievedError(UNSIGNED)\n",
        "    if policy.trust is None:\n        return\n",
        FORGED,
    ),
    Mutation(
        "trust: whatever is true is True",
        BAGGAGE,
        "        return trust(scope) is True\n",
        "        return bool(trust(scope))\n",
        TRUST + "test_a_predicate_says_true_and_nothing_like_it",
    ),
    Mutation(
        "trust: a predicate that fails says yes",
        BAGGAGE,
        "        return trust(scope) is True\n    return False",
        "        return trust(scope) is True\n    return True",
        TRUST + "test_a_predicate_that_fails_believes_nobody",
    ),
    Mutation(
        "trust: entries come in that were not declared",
        BAGGAGE,
        "for name, field in _ENTRIES.items() if name in declared}",
        "for name, field in _ENTRIES.items() if declared}",
        TRUST + "test_of_what_is_signed_the_declared_entries_are_taken",
    ),
    Mutation(
        "trust: a wrong variable fails a request",
        BAGGAGE,
        "        except settings.SettingError as error:\n",
        "        except ZeroDivisionError as error:\n",
        TRUST + "test_a_wrong_variable_fails_no_request",
    ),
    Mutation(
        "trust: each header is logged",
        BAGGAGE,
        '    faults.log_once(\n        f"baggage:{reason}",\n        "gputrace ignored',
        '    faults.logger.warning(\n        "gputrace ignored',
        TRUST + "test_each_reason_is_counted_each_time_and_logged_once_without_the_header",
    ),
    Mutation(
        "trust: what is not believed is not counted",
        BAGGAGE,
        "        _unbelieved[reason] = _unbelieved.get(reason, 0) + 1\n",
        "        _unbelieved[reason] = 1\n",
        TRUST + "test_each_reason_is_counted_each_time_and_logged_once_without_the_header",
    ),
    Mutation(
        "trust: a forked child counts what its parent counted",
        "gputrace/lifecycle.py",
        "    baggage.reset()\n",
        "",
        TRUST + "test_a_forked_child_counts_its_own",
    ),
    Mutation(
        "trust: baggage wins over what encloses it",
        BAGGAGE,
        "            return attribution.unclaimed(_judged(text, scope), attribution.scope_in_force())\n",
        "            return _judged(text, scope)\n",
        TRUST + "test_baggage_ranks_below_every_explicit_value",
    ),
    Mutation(
        "trust: tenants go out unasked",
        BAGGAGE,
        "if tenants or name != catalogue.TENANT}",
        "if True}",
        TRUST + "test_a_tenant_is_sent_where_it_was_opted_in",
    ),
    Mutation(
        "trust: entries that came from anywhere are passed on",
        HEADER,
        "if entry.strip() and not is_ours(entry)]",
        "if entry.strip()]",
        TRUST + "test_others_keep_their_entries_and_none_of_ours_is_passed_on",
    ),
    Mutation(
        "trust: a long header is read",
        HEADER,
        "    if len(header) > MOST_BYTES:\n        raise UnbelievedError(OVERSIZED)\n",
        "",
        OVERSIZED,
    ),
    Mutation(
        "trust: a header of many entries is read",
        HEADER,
        "    if len(entries) > MOST_ENTRIES or len(mine) > MOST_OF_OURS:",
        "    if len(mine) > MOST_OF_OURS:",
        OVERSIZED,
    ),
    Mutation(
        "trust: of two entries of one name the last holds",
        HEADER,
        " or not _NAME.fullmatch(name) or name in found:",
        " or not _NAME.fullmatch(name):",
        MALFORMED,
    ),
    Mutation(
        "trust: a value holds control characters",
        HEADER,
        "        and value.isprintable()\n",
        "",
        MALFORMED,
    ),
    Mutation(
        "trust: a value is one of gputrace's own rows",
        HEADER,
        "        and not value.startswith(RESERVED_PREFIX)\n",
        "",
        MALFORMED,
    ),
    Mutation(
        "trust: half a character is replaced",
        HEADER,
        'unquote_plus(encoded, errors="strict")',
        'unquote_plus(encoded, errors="replace")',
        MALFORMED,
    ),
    Mutation(
        "trust: a plus goes out as it is",
        HEADER,
        "quote(value, safe='')",
        "quote(value, safe='+')",
        PROPAGATED + "test_a_space_is_told_from_a_plus",
    ),
    Mutation(
        "trust: the signature covers the names alone",
        SIGNATURE,
        'sorted(f"{name}={value}" for name, value in entries.items())',
        "sorted(entries)",
        SIGNED,
    ),
    Mutation(
        "trust: the signature covers no time",
        SIGNATURE,
        "        at,\n        *sorted",
        "        *sorted",
        SIGNED,
    ),
    Mutation(
        "trust: a signature never ages",
        SIGNATURE,
        "now_s - int(at) <= LONGEST_AGE_S",
        "now_s - int(at)",
        TRUST + "test_a_signature_ages",
    ),
    Mutation(
        "trust: a signature comes from the future",
        SIGNATURE,
        "    if not -FARTHEST_AHEAD_S <= now_s",
        "    if not now_s",
        TRUST + "test_a_signature_ages",
    ),
    Mutation(
        "trust: the first key alone is believed",
        SIGNATURE,
        " for key in keys]",
        " for key in keys[:1]]",
        TRUST + "test_a_key_is_changed_without_losing_a_request",
    ),
    Mutation(
        "propagator: what a client says stays in the context",
        PROPAGATOR,
        "            if name.startswith(baggage_header.PREFIX):",
        "            if False:",
        PROPAGATED + "test_honeycomb_opentelemetry_dotnet_167_what_a_client_says_lands_nowhere",
    ),
    Mutation(
        "propagator: what comes in wins",
        SCOPE,
        "billed.merged(unclaimed(fields, outer))",
        "billed.merged(fields)",
        PROPAGATED + "test_it_ranks_below_every_explicit_value",
    ),
    Mutation(
        "propagator: a context that was handed on is not looked at",
        SCOPE,
        "        known = context_api.get_current() if context is None else context\n",
        "        known = context_api.get_current()\n",
        PROPAGATED + "test_a_context_that_was_handed_on_alone_is_enough",
    ),
    Mutation(
        "settings: a key is shown",
        VALUES,
        '                f"{name}: a key of {len(key)} bytes',
        '                f"{name}: {key!r}, a key of {len(key)} bytes',
        "tests/test_settings.py::test_a_key_is_never_shown",
    ),
    Mutation(
        "settings: keys are printed with the others",
        SETTINGS,
        "field(default=(), repr=False)",
        "field(default=())",
        "tests/test_settings.py::test_a_key_is_never_shown",
    ),
    Mutation(
        "settings: nobody is believed, silently",
        SETTINGS,
        "    _check_trust(chosen)\n",
        "",
        "tests/test_settings.py::test_a_wrong_argument_is_refused_by_its_name",
    ),
    Mutation(
        "settings: the variable wins over the argument",
        SETTINGS,
        "        if given is not None:\n",
        "        if given is not None and not variables.get(setting.variable or ''):\n",
        "tests/test_settings.py::test_precedence_of_the_export_interval",
    ),
    Mutation(
        "carry: calls at once share a context",
        CARRYING,
        "context.copy().run(",
        "context.run(",
        CARRIED + "test_calls_at_once_see_nothing_of_each_other",
    ),
    Mutation(
        "carry: the context is that of the thread",
        CARRYING,
        "        return context.copy().run(",
        "        return copy_context().run(",
        CARRIED + "test_it_goes_into_a_thread_pool",
    ),
    Mutation(
        "logs: a listener writes over what was in force",
        LOGS,
        'had.setdefault("gputrace_feature", billed.feature or catalogue.NO_FEATURE)',
        'had["gputrace_feature"] = billed.feature or catalogue.NO_FEATURE',
        "tests/tracking/test_logs.py::test_a_listener_in_another_thread_keeps_what_was_in_force",
    ),
]
