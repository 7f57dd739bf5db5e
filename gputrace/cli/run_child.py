"""What `gputrace run` starts: a Python program as one tracked call, in its own `__main__`."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import signal
import sys
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

import gputrace
from gputrace import attribution, call as calls, settings
from gputrace.cli.run_python import CODE, FILE
from gputrace.devices import selection
from gputrace.prices_rows import PriceBookError

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from gputrace.call import Call

_FAILED = 2


def main() -> None:
    """Run the program that `sys.argv` names: operation, kind, program, then its own arguments."""
    _, operation, kind, program, *arguments = sys.argv
    try:
        gputrace.configure()
    except (settings.SettingError, PriceBookError) as error:
        sys.exit(f"gputrace run: {error}")
    call = _begin(operation)
    _end_at_sigterm(call)
    try:
        _run(kind, program, arguments)
    except SystemExit as end:
        calls.leave(call, end if end.code else None)
        raise
    except BaseException as error:
        calls.leave(call, error)
        _show_from_the_program_on(error)
        raise
    else:
        calls.leave(call)


def _show_from_the_program_on(error: BaseException) -> None:
    """Let whoever shows the error, the program's own hook too, see no frame of this module above it.

    The frames go on once more while the error leaves `main`, so they are taken off when it is shown.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == main.__code__.co_filename:
        traceback = traceback.tb_next
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, whole: TracebackType | None) -> None:
        sys.excepthook = hook
        if value is error:
            value, whole = value.with_traceback(traceback), traceback
        hook(kind, value, whole)

    sys.excepthook = show


def _begin(operation: str) -> Call:
    """Open the call that the program's life is, and let it enclose everything on every thread.

    On a machine with a GPU it holds none: nobody knows which, and CUDA is not
    initialised yet. What is tracked inside holds one, and is billed alike.
    """
    calls.ensure_settled()
    hold = calls.HOLD_NONE if selection.gpu else calls.HOLD_CALL
    call = calls.enter(calls.Site(operation, {}, hold=hold))
    # Off this thread's context: its span is no parent of all others, which decide on sampling themselves.
    calls.suspend(call)
    attribution.enclose(call)
    return call


def _end_at_sigterm(call: Call) -> None:
    """Export what is known when the process is asked to end, as far as the program lets it."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    process = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == process:
            if not call.closed:
                calls.leave(call, _TerminatedError())
            gputrace.shutdown()
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)


class _TerminatedError(Exception):
    """SIGTERM ended the program."""


def _run(kind: str, program: str, arguments: list[str]) -> None:
    """Do as the interpreter does with a script, `-m` or `-c`."""
    main_module = _new_main()
    if kind == CODE:
        _look_first_in("")
        sys.argv = ["-c", *arguments]
        code = compile(program, "<string>", "exec", dont_inherit=True)
        exec(code, main_module.__dict__)  # noqa: S102 - the user's own program
        return
    sys.argv = [program, *arguments]
    if kind != FILE:
        _look_first_in(os.getcwd())  # noqa: PTH109 - a string, as Python puts it there
        runpy._run_module_as_main(program)  # type: ignore[attr-defined] # noqa: SLF001 - what `-m` itself calls
        return
    program = str(Path(program).absolute())
    if Path(program).is_dir() or _is_archive(program):
        _look_first_in(program, always=True)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined] # noqa: FBT003, SLF001 - likewise
        return
    _look_first_in(str(Path(program).resolve().parent))
    main_module.__file__ = program
    main_module.__loader__ = SourceFileLoader("__main__", program)
    exec(_compiled(program), main_module.__dict__)  # noqa: S102 - the user's own program


def _new_main() -> types.ModuleType:
    """Put an empty `__main__` in the place of this program's own."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module


def _look_first_in(folder: str, *, always: bool = False) -> None:
    isolated = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    if always or not isolated:
        sys.path.insert(0, folder)


def _is_archive(program: str) -> bool:
    from zipfile import is_zipfile

    return not program.endswith((".py", ".pyw")) and is_zipfile(program)


def _compiled(program: str) -> types.CodeType:
    try:
        with io.open_code(program) as file:
            source = file.read()
    except OSError as error:
        # As the interpreter says it, with its exit status.
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {program!r}: {reason}", file=sys.stderr)
        sys.exit(_FAILED)
    return compile(source, program, "exec", dont_inherit=True)
