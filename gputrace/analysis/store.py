"""OTLP/JSON lines as two DuckDB tables: points of metrics, and calls from spans.

Nothing of a line is trusted. A line that is not JSON, or is JSON of something
else, is counted and left out. Attributes are taken out by one JSON path for
all keys and one for all values: that is four times as fast as looking up each.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from gputrace import catalogue
from gputrace.analysis import event_rows
from gputrace.analysis.call_rows import CALLS, PARAMETERS
from gputrace.analysis.survey import LOGS, METRICS, SPANS, Advance, FileFacts, Survey

if TYPE_CHECKING:
    from collections.abc import Sequence

READ_METRICS = (
    catalogue.FEATURE_TIME,
    catalogue.FEATURE_COST,
    catalogue.FEATURE_ENERGY,
    catalogue.DEVICE_TIME,
    catalogue.DEVICE_COST,
    catalogue.DEVICE_ENERGY,
    catalogue.DEVICE_OVERLAP_TIME,
    catalogue.DEVICE_UNTRACKED_UPPER_TIME,
    catalogue.FEATURE_ALONE_TIME,
    catalogue.FEATURE_ALONE_BUSY_TIME,
    catalogue.FEATURE_ALONE_PERIODS,
    catalogue.CALLS,
    catalogue.OUTCOMES,
    catalogue.UNITS,
    *catalogue.STEP_METRICS,
    catalogue.SDK_LOST,
    catalogue.SDK_UNMEASURED,
    catalogue.SDK_FOLDED,
    catalogue.SDK_UNTRUSTED,
    catalogue.SDK_FAULTS,
)

_POLL_S = 0.1
_LINE_MARGIN_BYTES = 8 << 20  # A file may grow between the survey and the reading.
_DEFAULT_LINE_BYTES = 16 << 20

# In one attribute each of `key` and `value.*` occurs once, so both lists align;
# only an empty value (`{}`) breaks that, and takes the slow way. DuckDB before 1.5
# lets `{...} rest` pass as a line and then fails on it, hence `valid_or_null`.
_MACROS = f"""
CREATE TEMP MACRO attribute_keys(owner) AS json_extract_string(owner, '$.attributes[*].key');
CREATE TEMP MACRO attribute_values(owner) AS CASE
    WHEN len(json_extract_string(owner, '$.attributes[*].value.*')) = len(attribute_keys(owner))
    THEN json_extract_string(owner, '$.attributes[*].value.*')
    ELSE list_transform(
        json_extract(owner, '$.attributes[*]'),
        lambda item: json_extract_string(item, '$.value.*')[1])
    END;
CREATE TEMP MACRO lookup(keys, vals, name) AS vals[list_position(keys, name)];
CREATE TEMP MACRO is_simulated(owner) AS coalesce(
    lookup(attribute_keys(owner), attribute_values(owner), '{catalogue.SIMULATED}') = 'true', false);
CREATE TEMP MACRO valid_or_null(line) AS CASE WHEN json_valid(line) THEN line END;
CREATE TEMP MACRO is_known(line) AS
    json_exists(line, '$.resourceMetrics') OR json_exists(line, '$.resourceSpans')
    OR json_exists(line, '$.resourceLogs');
CREATE TEMP MACRO or_bad(line, parts) AS CASE
    WHEN line IS NULL THEN [NULL]
    WHEN len(parts) > 0 THEN parts
    WHEN is_known(line) THEN []
    ELSE [NULL] END;
"""

# A row whose `part` is NULL stands for a line that could not be used.
_POINTS = """
CREATE TEMP TABLE raw_point AS
WITH line AS (SELECT filename, valid_or_null(json) AS json FROM {source}),
resource AS (
    SELECT filename, unnest(or_bad(json, json_extract(json, '$.resourceMetrics[*]'))) AS resource FROM line),
owner AS (
    SELECT filename, json_extract(resource, '$.resource') AS owner,
        unnest(coalesce(json_extract(resource, '$.scopeMetrics[*].metrics[*]'), [NULL])) AS metric
    FROM resource),
named AS (
    SELECT filename, metric,
        coalesce(lookup(attribute_keys(owner), attribute_values(owner), 'service.instance.id'),
            CAST(owner AS VARCHAR), filename) AS process,
        is_simulated(owner) AS simulated,
        json_extract_string(metric, ['$.name', '$.sum.aggregationTemporality']) AS head
    FROM owner),
part AS (
    SELECT filename, process, simulated, head[1] AS metric,
        coalesce(head[2] IN ('1', 'AGGREGATION_TEMPORALITY_DELTA'), false) AS delta,
        unnest(CASE WHEN metric IS NULL THEN [NULL]
            WHEN list_contains(?, head[1]) THEN json_extract(metric, '$.sum.dataPoints[*]')
            WHEN list_contains(?, head[1]) THEN json_extract(metric, '$.gauge.dataPoints[*]')
            ELSE [] END) AS part
    FROM named),
field AS (
    SELECT filename, process, simulated, metric, delta, part, attribute_keys(part) AS keys,
        attribute_values(part) AS vals,
        json_extract_string(part, ['$.startTimeUnixNano', '$.timeUnixNano', '$.asDouble', '$.asInt']) AS field
    FROM part)
SELECT filename, part IS NULL AS bad, process, simulated, metric, delta,
    CASE WHEN delta THEN 0 ELSE coalesce(TRY_CAST(field[1] AS BIGINT), 0) END AS start_ns,
    TRY_CAST(field[2] AS BIGINT) AS at_ns,
    list_sort(list_transform(list_zip(keys, vals), lambda item: {'key': item[1], 'text': item[2]}))
        AS attributes,
    coalesce(TRY_CAST(field[3] AS DOUBLE), TRY_CAST(field[4] AS DOUBLE)) AS value
FROM field
"""

_ORIGINS = """
CREATE TEMP TABLE origin AS
SELECT process, bool_or(simulated) AS simulated FROM raw_point WHERE NOT bad GROUP BY process
"""

# The same export may lie in two copies of a file; then it counts once.
_DISTINCT_POINTS = """
CREATE TEMP TABLE point AS
SELECT process, metric, delta, start_ns, at_ns, attributes, max(value) AS value
FROM raw_point
WHERE NOT bad AND at_ns IS NOT NULL AND isfinite(value)
GROUP BY ALL
"""

_CUMULATE_DELTAS = """
CREATE OR REPLACE TEMP TABLE point AS
SELECT process, metric, delta, start_ns, at_ns, attributes,
    CASE WHEN delta THEN sum(value) OVER (
        PARTITION BY process, metric, delta, start_ns, attributes ORDER BY at_ns) ELSE value END AS value
FROM point
"""


class FilesChangedError(Exception):
    """A surveyed file was gone or renamed when it was to be read; survey again."""


class Store:
    """An in-memory DuckDB over the files of one survey. Close it after use."""

    def __init__(self, found: Survey, advance: Advance | None = None) -> None:
        """Open the database; nothing is read yet.

        Args:
            found: The files, as surveyed.
            advance: Told how far each reading is.
        """
        self._found = found
        self._advance = advance
        self._bad: dict[str, Counter[str]] = {}
        self._connection = duckdb.connect(
            config={
                # A report never goes to the network, and never leaves `.tmp` in the user's folder.
                "autoinstall_known_extensions": "false",
                "temp_directory": str(Path(tempfile.gettempdir()) / "gputrace-report"),
                "preserve_insertion_order": "false",
            }
        )
        self._connection.execute(_MACROS)

    def close(self) -> None:
        """Give the memory back."""
        self._connection.close()

    def rows(self, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run one query on the loaded tables and return all of its rows."""
        return self._connection.execute(sql, parameters).fetchall()

    def records(self, sql: str, parameters: Any = None) -> list[dict[str, Any]]:
        """Run one query and return its rows by the names of their columns."""
        done = self._connection.execute(sql, parameters)
        names = [column[0] for column in done.description or ()]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def execute(self, sql: str) -> None:
        """Run one statement that returns nothing."""
        self._connection.execute(sql)

    def load_points(self, metrics: Sequence[catalogue.Metric] = READ_METRICS) -> None:
        """Fill the table `point` with every reading of some metrics, and `origin` with whose they are.

        Args:
            metrics: Which; by default all that a report uses.

        Raises:
            FilesChangedError: A file is no longer where the survey saw it.
        """
        files = self._found.holding(METRICS)
        kinds: dict[bool, list[str]] = {True: [], False: []}
        for metric in metrics:
            kinds[metric.kind is catalogue.Kind.GAUGE].append(metric.name)
        names = [kinds[False], kinds[True]]
        self._load(METRICS, files, _POINTS, names, "raw_point", "Reading metrics")
        self._connection.execute(_DISTINCT_POINTS)
        self._connection.execute(_ORIGINS)
        self._connection.execute("DROP TABLE raw_point")
        if self.rows("SELECT count(*) FROM point WHERE delta")[0][0]:
            self._connection.execute(_CUMULATE_DELTAS)

    def load_calls(self, *, identities: bool = False) -> None:
        """Fill the table `raw_call`: one row a span of gputrace, outcomes among them.

        Args:
            identities: Whether to read who each call is, so that outcomes can be joined with it.

        Raises:
            FilesChangedError: A file is no longer where the survey saw it.
        """
        parameters = {**PARAMETERS, "identities": identities}
        self._load(SPANS, self._found.holding(SPANS), CALLS, parameters, "raw_call", "Reading spans")

    def load_events(self) -> None:
        """Fill the table `raw_event`: one row a decision of a cascade, and one a score.

        Raises:
            FilesChangedError: A file is no longer where the survey saw it.
        """
        files = self._found.holding(LOGS)
        self._load(LOGS, files, event_rows.EVENTS, event_rows.PARAMETERS, "raw_event", "Reading events")

    def skipped(self) -> dict[Path, int]:
        """Return the number of lines that could not be used, by file; only files that have any."""
        counts: dict[Path, int] = {}
        for file in self._found.files:
            seen = [bad[str(file.path)] for signal, bad in self._bad.items() if file.holds(signal)]
            # Files that no query read are known from their first bytes alone.
            count = max(seen) if seen else file.lines[None]
            if count:
                counts[file.path] = count
        return counts

    def _load(  # noqa: PLR0913 - each names one part of a load; bundling them would only hide it
        self, signal: str, files: tuple[FileFacts, ...], sql: str, parameters: Any, table: str, stage: str
    ) -> None:
        query = sql.replace("{source}", _source(files))
        try:
            self._run(query, parameters, stage)
        except duckdb.IOException as error:
            message = f"{self._found.source}: a file went away while it was read ({error})"
            raise FilesChangedError(message) from error
        bad = self.rows(f"SELECT filename, count(*) FROM {table} WHERE bad GROUP BY filename")  # noqa: S608
        self._bad[signal] = Counter(dict(bad))

    def _run(self, query: str, parameters: Any, stage: str) -> None:
        if self._advance is None:
            self._connection.execute(query, parameters)
            return
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="gputrace-report") as pool:
            reading = pool.submit(self._connection.execute, query, parameters)
            try:
                while not wait((reading,), _POLL_S).done:
                    self._advance(stage, max(0.0, self._connection.query_progress() / 100))
            finally:
                # Ctrl-C ends the query too, else leaving the pool would wait for it.
                if not reading.done():
                    self._connection.interrupt()
            reading.result()
        self._advance(stage, 1.0)


def _source(files: tuple[FileFacts, ...]) -> str:
    """Return the table function over these files, or an empty table if there are none."""
    if not files:
        return "(SELECT NULL::VARCHAR AS filename, NULL::JSON AS json WHERE false)"
    paths = ", ".join(_quoted(file.path) for file in files)
    longest = max(file.longest for file in files) + _LINE_MARGIN_BYTES
    # Larger buffers make every read slower, so they grow only for lines that need it.
    size = f", maximum_object_size={longest}" if longest > _DEFAULT_LINE_BYTES else ""
    return (
        f"read_json_objects([{paths}], format='newline_delimited', ignore_errors=true,"
        f" filename=true, compression='uncompressed'{size})"
    )


def _quoted(path: Path) -> str:
    # DuckDB takes every path for a glob.
    pattern = re.sub(r"[\[*?]", lambda special: f"[{special[0]}]", str(path))
    return "'" + pattern.replace("'", "''") + "'"
