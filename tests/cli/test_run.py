"""`gputrace run`, by real programs: they notice nothing, and reports show their time under the feature."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile

import pytest

from gputrace.analysis.reporting import spend_report


class Runs:
    """Runs `gputrace run` in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, source, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        path.chmod(mode)
        return path

    def start(self, *command, feature="nightly", options=(), **variables):
        foreign = ("OTEL_", "GPUTRACE_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        environment |= {"GPUTRACE_RAISE_FAULTS": "1", **variables}
        return subprocess.Popen(
            [sys.executable, "-m", "gputrace", "run", "--feature", feature, *options, "--", *command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *command, status=0, **arguments):
        process = self.start(*command, **arguments)
        try:
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == status, f"{process.returncode}\n{output}\n{errors}"
        return subprocess.CompletedProcess(command, status, output, errors)

    def rows(self, by=("feature", "operation")):
        report = spend_report(self.folder / "gputrace-data", by)
        assert report.balance.balanced
        return {tuple(row.key.values()): row for row in report.rows if row.calls or row.charged_s}


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


SEEN = """
import json, sys
main = sys.modules["__main__"]
def annotated(x: int): ...
print(json.dumps([
    sys.argv, __name__, main.__dict__ is globals(), globals().get("__file__"), sys.path[0],
    getattr(__spec__, "name", None), __package__, annotated.__annotations__["x"] is int,
    sorted(set(dir()) - {"json", "sys", "main", "annotated"}),
]))
"""
#: Beside what every main module has: depends on the version and means nothing to a program.
INCIDENTAL = {"__cached__", "__annotations__", "__conditional_annotations__"}


def seen(output):
    *words, names = json.loads(output)
    return [*words, sorted(set(names) - INCIDENTAL)]


@pytest.mark.parametrize(
    "command",
    [
        ("job.py",),
        ("job.py", "a b", "--feature", "x", "--", "-c", ""),
        ("folder/job.py", "a"),
        ("link.py",),
        ("-m", "package.job", "-m"),
        ("-mpackage", "a"),
        ("-c", SEEN, "-c", "a"),
        ("-uXutf8", "job.py"),
        ("-I", "job.py"),
        ("application",),
        ("archive.zip", "a"),
    ],
    ids=lambda command: " ".join(word[:12] for word in command),
)
def test_a_program_sees_what_it_sees_without(runs, command):
    for name in (
        "job.py",
        "folder/job.py",
        "package/job.py",
        "package/__main__.py",
        "application/__main__.py",
    ):
        runs.write(name, SEEN)
    (runs.folder / "link.py").symlink_to("folder/job.py")
    with zipfile.ZipFile(runs.folder / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", SEEN)
    alone = subprocess.run(
        [sys.executable, *command], cwd=runs.folder, capture_output=True, text=True, check=True
    )
    isolated = "-I" in command and "PYTHONPATH" in os.environ
    tracked = runs("python", *command)
    assert seen(tracked.stdout) == seen(alone.stdout)
    if not isolated:
        # The package may be found by PYTHONPATH alone here.
        assert tracked.stderr == ""
        assert [key[0] for key in runs.rows()] == ["nightly"]


JOB = """
import time
import gputrace

def work():
    time.sleep(0.2)

work()
with gputrace.span("rerank", feature="search"):
    time.sleep(0.1)
gputrace.outcome("written")
"""


def test_the_whole_life_is_billed_to_the_feature(runs):
    runs.write("job.py", JOB)
    runs(
        "python",
        "job.py",
        options=("--operation", "train", "--tenant", "acme"),
        GPUTRACE_METRIC_ATTRIBUTES="tenant",
    )
    rows = runs.rows(("feature", "operation", "tenant"))
    assert set(rows) == {("nightly", "train", "acme"), ("search", "rerank", "acme")}
    assert rows["nightly", "train", "acme"].charged_s >= 0.2
    assert rows["search", "rerank", "acme"].charged_s >= 0.1
    (written,) = spend_report(runs.folder / "gputrace-data").outcomes
    assert (written.name, written.feature, written.count) == ("written", "nightly", 1)


def test_a_thread_is_billed_like_the_program(runs):
    runs.write(
        "job.py",
        """
import threading, time, gputrace
def work():
    assert gputrace.current().feature == "nightly"
    with gputrace.span("inner"):
        time.sleep(0.1)
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    )
    runs("python", "job.py")
    rows = runs.rows()
    assert set(rows) == {("nightly", "job.py"), ("nightly", "inner")}
    assert rows["nightly", "inner"].charged_s >= 0.1


def test_it_is_no_parent_of_the_programs_spans(runs, read_files):
    """Each decides on sampling itself; a trace of a whole night would hold millions of spans."""
    runs.write("job.py", JOB)
    runs("python", "job.py")
    spans = {span["name"]: span for span in read_files(runs.folder / "gputrace-data").spans}
    assert set(spans) == {"job.py", "rerank"}
    assert spans["rerank"].get("parentSpanId", "") == ""


@pytest.mark.parametrize(
    ("ending", "status", "errors"),
    [
        ("pass", 0, 0),
        ("sys.exit()", 0, 0),
        ("sys.exit(0)", 0, 0),
        ("sys.exit(7)", 7, 1),
        ("sys.exit('no')", 1, 1),
        ("raise ValueError('boom')", 1, 1),
        ("raise KeyboardInterrupt", -signal.SIGINT, 1),
    ],
)
def test_the_exit_status_is_the_programs(runs, ending, status, errors):
    runs.write("job.py", f"import sys\n{ending}\n")
    result = runs("python", "job.py", status=status)
    assert ("Traceback" in result.stderr) == ending.startswith("raise")
    (row,) = runs.rows().values()
    assert (row.calls, row.errors) == (1, errors)


RAISES = """
import sys
def inner():
    raise KeyError("inner")
try:
    inner()
except KeyError as error:
    raise ValueError("outer") from error
"""
HOOKED = """
import sys, traceback
def hook(kind, value, tb):
    print("mine", len(traceback.extract_tb(tb)), len(traceback.extract_tb(value.__traceback__)))
sys.excepthook = hook
1 / 0
"""


@pytest.mark.parametrize("source", [RAISES, HOOKED, "def f(:\n"], ids=["chained", "hooked", "syntax"])
@pytest.mark.parametrize("way", ["file", "module", "code"])
def test_what_is_said_of_an_error_is_what_is_said_without(runs, source, way):
    runs.write("job.py", source)
    command = {"file": ("job.py",), "module": ("-m", "job"), "code": ("-c", source)}[way]
    alone = subprocess.run(
        [sys.executable, *command], cwd=runs.folder, capture_output=True, text=True, check=False
    )
    tracked = runs("python", *command, status=alone.returncode)
    path, relative = str(runs.folder / "job.py"), 'File "job.py"'
    assert tracked.stderr == alone.stderr.replace(relative, f'File "{path}"')
    assert tracked.stdout == alone.stdout


def test_a_script_that_is_not_there_ends_as_python_ends(runs):
    alone = subprocess.run(
        [sys.executable, "gone.py"], cwd=runs.folder, capture_output=True, text=True, check=False
    )
    result = runs("python", "gone.py", status=alone.returncode)
    assert "can't open file" in result.stderr
    assert "gone.py" in result.stderr


def test_a_module_that_is_not_there_ends_as_python_ends(runs):
    assert "No module named" in runs("python", "-m", "gone_module", status=1).stderr


POOL = """
import multiprocessing, pickle, sys

class Point:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return type(self) is type(other) and self.x == other.x

def moved(point):
    return Point(point.x + 1)

if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(moved)) is moved
    for method in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(moved, [Point(1)]) == [Point(2)], method
    print("done")
"""


@pytest.mark.parametrize("command", [("job.py",), ("-m", "job")])
def test_multiprocessing_finds_the_main_module(runs, command):
    runs.write("job.py", POOL)
    assert runs("python", *command).stdout == "done\n"


def test_what_runs_at_exit_still_has_the_main_module(runs):
    runs.write(
        "job.py",
        """
import atexit, pickle, threading, time
class Point: ...
def late():
    time.sleep(0.05)
    print(pickle.loads(pickle.dumps(Point())).__class__ is Point)
atexit.register(late)
threading.Thread(target=late).start()
""",
    )
    assert runs("python", "job.py").stdout == "True\nTrue\n"


WAITS = """
import os, signal, sys, time
{handler}
try:
    print(os.getpid(), flush=True)
    time.sleep(60)
finally:
    print("left", flush=True)
"""


def started(runs, handler=""):
    """A program that waits, once its first line says that it does."""
    runs.write("job.py", WAITS.format(handler=handler))
    process = runs.start("python", "job.py")
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid, "it takes the place of the command"
    return process


def ended(process):
    try:
        return (*process.communicate(timeout=30), process.returncode)
    finally:
        process.kill()


def test_sigterm_ends_it_and_what_is_known_is_exported(runs):
    process = started(runs)
    process.send_signal(signal.SIGTERM)
    output, errors, status = ended(process)
    assert (output, errors, status) == ("", "", -signal.SIGTERM), "as without: nothing is cleaned up"
    (row,) = runs.rows().values()
    assert (row.calls, row.errors) == (1, 1)
    assert row.charged_s > 0


def test_sigint_reaches_it_as_an_interrupt(runs):
    process = started(runs)
    process.send_signal(signal.SIGINT)
    output, errors, status = ended(process)
    assert (output, status) == ("left\n", -signal.SIGINT)
    assert "KeyboardInterrupt" in errors
    (row,) = runs.rows().values()
    assert (row.calls, row.errors) == (1, 1)


def test_a_handler_of_the_programs_own_is_its_own(runs):
    process = started(runs, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[::2] == ("left\n", 5)


def test_a_signal_that_is_ignored_stays_ignored(runs):
    runs.write("job.py", "import signal\nprint(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)\n")
    command = f"trap '' TERM; exec {sys.executable} -m gputrace run --feature nightly python job.py"
    done = subprocess.run(["sh", "-c", command], cwd=runs.folder, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_sigterm_ends_a_forked_child_like_any_other(runs):
    runs.write(
        "job.py",
        """
import multiprocessing, time
import gputrace
fork = multiprocessing.get_context("fork")
ready = fork.Event()
def wait():
    gputrace.shutdown = lambda: print("shut down", flush=True)
    ready.set()
    time.sleep(60)
if __name__ == "__main__":
    child = fork.Process(target=wait)
    child.start()
    ready.wait()
    child.terminate()
    child.join()
    print(child.exitcode)
""",
    )
    assert runs("python", "job.py").stdout == "-15\n"
    (row,) = runs.rows().values()
    assert (row.calls, row.errors) == (1, 0)


def test_input_goes_to_the_program(runs):
    process = runs.start("python", "-c", "print(input()[::-1])")
    assert process.communicate("abc\n", timeout=60)[0] == "cba\n"


# --- what is not Python


def test_another_program_runs_untouched_and_that_nothing_is_measured_is_said(runs):
    result = runs("sh", "-c", 'echo "$0 $1 $GPUTRACE_FEATURE"; exit 4', "a", "b c", status=4)
    assert result.stdout == "a b c nightly\n"
    assert result.stderr == (
        "gputrace run: sh is no Python program: it runs, and nothing of it is measured from outside\n"
    )
    assert not (runs.folder / "gputrace-data").exists()


def test_another_program_has_the_signals_that_it_would_have(runs):
    """Python ignores a broken pipe, and what it starts must not."""
    command = ("sh", "-c", "grep ^SigIgn: /proc/self/status")
    bare = subprocess.run(command, capture_output=True, text=True, check=True)
    assert runs(*command).stdout == bare.stdout


def test_python_inside_a_shell_script_bills_the_feature(runs):
    runs.write("job.py", "import gputrace\ngputrace.configure()\n" + JOB)
    runs.write("job.sh", f"#!/bin/sh\n{sys.executable} job.py\n", 0o755)
    runs("./job.sh")
    assert set(runs.rows()) == {("search", "rerank")}
    (written,) = spend_report(runs.folder / "gputrace-data").outcomes
    assert written.feature == "nightly"


def test_a_script_of_this_environment_is_a_python_program(runs):
    runs.write("tool", f"#!{sys.executable}\nimport sys\nprint(sys.argv)\n", 0o755)
    result = runs("./tool", "a")
    assert (result.stdout, result.stderr) == ("['./tool', 'a']\n", "")
    assert set(runs.rows()) == {("nightly", "tool")}


def test_an_interpreter_without_gputrace_runs_alone(runs):
    result = runs(sys.executable, "-S", "-c", "print('ran')")
    assert result.stdout == "ran\n"
    assert "finds no gputrace to import: it runs, and nothing of it is measured" in result.stderr


@pytest.mark.parametrize("command", [("python",), ("python", "-V"), ("python", "-")])
def test_python_without_a_program_runs_alone(runs, command):
    assert "no script, module or -c is named for Python" in runs(*command).stderr


# --- what cannot be run


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ((), 2, "say what to run"),
        (("no-such-program",), 127, "no-such-program is not there, or not on PATH"),
        (("./data",), 126, "./data cannot be executed"),
        (("./broken",), 126, "cannot be executed: "),
    ],
)
def test_what_cannot_be_run_is_said_with_the_status_of_a_shell(runs, command, status, message):
    runs.write("data", "")
    runs.write("broken", "#!/no/such/interpreter\n", 0o755)
    assert message in runs(*command, status=status).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"feature": ""}, "--feature '' must be a name"),
        ({"feature": " "}, "--feature ' ' must be a name"),
        ({"options": ("--tenant", "")}, "--tenant '' must be a name"),
        ({"options": ("--operation", "")}, "--operation '' must be a name"),
        ({"feature": "__mine"}, "GPUTRACE_FEATURE: '__mine' starts with '__'"),
        ({"GPUTRACE_EXPORT_INTERVAL": "soon"}, "GPUTRACE_EXPORT_INTERVAL='soon' is not a number"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_runs(runs, arguments, message):
    result = runs("python", "-c", "print('ran')", status=2, **arguments)
    assert (result.stdout, message in result.stderr) == ("", True)


def test_a_price_book_that_cannot_be_used_ends_it_with_the_reason(runs):
    result = runs("python", "-c", "print('ran')", status=1, GPUTRACE_PRICES="gone.toml")
    assert result.stdout == ""
    assert "gputrace run: GPUTRACE_PRICES: gone.toml: No such file" in result.stderr


def test_where_the_sdk_is_disabled_the_program_runs_all_the_same(runs):
    assert runs("python", "-c", "print('ran')", OTEL_SDK_DISABLED="true").stdout == "ran\n"
    assert not (runs.folder / "gputrace-data").exists()


def test_on_a_gpu_the_calls_inside_hold_it_and_the_whole_does_not(runs):
    """Nobody knows which GPU, and CUDA is not initialised when it starts."""
    runs.write(
        "sitecustomize.py",
        "from gputrace.testing import VirtualGpu\nVirtualGpu(tied_to_real_time=True).install()\n",
    )
    runs.write(
        "job.py",
        """
import time, gputrace
from gputrace.devices import cuda_runtime
gpu = cuda_runtime.virtual_runtime()
gpu.init()
with gputrace.span("step"):
    gpu.launch(20_000_000)
    time.sleep(0.05)
gpu.launch(20_000_000)
time.sleep(0.05)
""",
    )
    path = os.pathsep.join(filter(None, [str(runs.folder), os.environ.get("PYTHONPATH")]))
    runs("python", "job.py", PYTHONPATH=path, GPUTRACE_NODE_DIR=str(runs.folder / "node"))
    report = spend_report(runs.folder / "gputrace-data", ("feature", "operation"))
    rows = {row.key["operation"]: row for row in report.rows if row.calls}
    assert {operation: row.key["feature"] for operation, row in rows.items()} == {
        "job.py": "nightly",
        "step": "nightly",
    }
    assert rows["job.py"].charged_s == 0
    assert rows["step"].charged_s >= 0.019
    assert not any("could not be timed" in note for note in report.notes)
