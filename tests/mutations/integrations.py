"""Mutations of the instrumentation of web frameworks."""

from __future__ import annotations

from mutations import Mutation

SCOPE = "gputrace/attribution.py"
CURRENT = "gputrace/attribution_current.py"
SPANS = "gputrace/telemetry/spans.py"
ASGI = "integrations/asgi.py"
REQUEST = "integrations/asgi_request.py"
ROUTES = "integrations/asgi_routes.py"
FASTAPI = "tests/integrations/test_fastapi.py::"
MESSAGES = "tests/integrations/test_asgi.py::"
MUTATIONS = [
    Mutation(
        "fastapi: a server span is told after it has ended",
        "integrations/asgi_request.py",
        "            if last:\n                # A server span ends with the last part.\n",
        "            if False:\n",
        "tests/integrations/test_fastapi_beside.py::test_what_a_stream_says_at_its_end_is_still_told",
    ),
    Mutation(
        "contrib 3586: what a thread of the pool sets stays in its copy of the context",
        CURRENT,
        "        if scope is None or scope is attribution.outermost or (scope is call and over):",
        "        if scope is None or scope is attribution.outermost or scope is call:",
        FASTAPI + "test_opentelemetry_python_contrib_3586",
    ),
    Mutation(
        "contrib 4251: background work hangs under a request that is over",
        SPANS,
        "    if parent is not outer.span and not _has_ended(parent):",
        "    if True:",
        # Without a span of FastAPI's between.
        MESSAGES + "test_background_work_begins_a_trace_that_is_linked",
    ),
    Mutation(
        "contrib 4251: background work is not linked to its request",
        SPANS,
        "        links.append(Link(outer.span.get_span_context()))",
        "        pass",
        FASTAPI + "test_opentelemetry_python_contrib_4251",
    ),
    Mutation(
        "contrib 4251: background work is inside its request",
        REQUEST,
        "            if last:\n                self.end()",
        "            if False:\n                self.end()",
        FASTAPI + "test_opentelemetry_python_contrib_4251",
    ),
    Mutation(
        "contrib 5081: the middleware, which requests share, keeps one of them",
        ASGI,
        "            scope[asgi_routes.SCOPE_KEY] = handling",
        "            self.handling = handling\n"
        "            await __import__('asyncio').sleep(0)\n"
        "            handling = scope[asgi_routes.SCOPE_KEY] = self.handling",
        FASTAPI + "test_opentelemetry_python_contrib_5081",
    ),
    Mutation(
        "features: the mark of a dependency beats that of the endpoint",
        ROUTES,
        '    named = gputrace.feature.of(getattr(route, "endpoint", None))\n    if named is None:',
        "    named = None\n    if named is None:",
        FASTAPI + "test_the_mark_of_the_endpoint_wins",
    ),
    Mutation(
        "features: the dependency farthest from the endpoint wins",
        ROUTES,
        'in reversed(getattr(dependant, "dependencies", None) or ()):',
        'in (getattr(dependant, "dependencies", None) or ()):',
        FASTAPI + "test_the_mark_of_the_nearest_dependency",
    ),
    Mutation(
        "routes: the path of a mount is forgotten",
        REQUEST,
        "            self._prefix += path\n",
        "",
        FASTAPI + "test_mounted_applications_and_paths_that_nobody_answers",
    ),
    Mutation(
        "routes: a path that nobody answers is counted as it is",
        REQUEST,
        "        request.describe(route=UNMATCHED)",
        '        request.describe(route=scope["path"])',
        FASTAPI + "test_mounted_applications_and_paths_that_nobody_answers",
    ),
    Mutation(
        "disconnects: a client that has gone is not noticed",
        REQUEST,
        '            if kind == "http.disconnect" or (',
        "            if (",
        MESSAGES + "test_a_client_that_goes_cancels_its_request",
    ),
    Mutation(
        "disconnects: a server that cannot send is an error of the application",
        REQUEST,
        "            except OSError:\n                self._gone = True",
        "            except OSError:",
        MESSAGES + "test_a_server_that_cannot_send_cancels_the_request",
    ),
    Mutation(
        "lifespan: nothing is flushed when the server stops",
        ASGI,
        '        if message["type"] in _SHUT_DOWN:',
        "        if False:",
        MESSAGES + "test_the_lifespan_flushes_before_it_ends",
    ),
    Mutation(
        "twice: an application is instrumented again",
        ASGI,
        "    if not any(entry.cls is RequestMiddleware for entry in app.user_middleware):",
        "    if True:",
        FASTAPI + "test_twice_is_once_and_removed_is_gone",
    ),
]
