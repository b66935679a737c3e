"""The command line without training: help, versions, and one clear error per mistake (issue: bad input)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import metaroll
from metaroll.errors import MetarollError
from metaroll.lab.cli import main as command_line
from metaroll.lab.cli.main import main
from metaroll.lab.display.consoles import make_console, show_problem, warning_line


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, " ".join(captured.err.split())


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"metaroll {metaroll.__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_all_commands_and_tuned_environments(capsys, arguments):
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    commands = ("demo", "train ALGO ENV", "resume RUN", "evaluate RUN", "check ENV", "list [WHAT]", "doctor")
    for word in (*commands, "cheetah-vel", "sparse-point-robot"):
        assert word in out


@pytest.mark.parametrize(("argument", "expected"), [("--version", 0), ("--nonsense", 2)])
def test_threads_that_never_end_do_not_keep_a_command(argument, expected):
    """Drivers of robots start such threads when they are imported: all was done, and the process stayed."""
    program = (
        "import atexit, sys, threading\n"
        "from metaroll.lab.cli import main\n"
        "main._PATIENCE_S = 0.1\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "atexit.register(print, 'at exit')\n"
        "sys.exit(main.main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, timeout=60)
    assert ended.returncode == expected and ended.stdout.endswith("at exit\n")
    assert ("--nonsense" in ended.stderr) == (expected == 2)


def test_threads_that_end_soon_are_waited_for_and_messages_of_logs_are_warnings():
    program = (
        "import logging, sys, threading, time\n"
        "from metaroll.lab.cli.main import main\n"
        "log = logging.getLogger('metaroll.rollouts').warning\n"
        "def end(): sys.stderr.close(); log('nobody reads it'); print('at the end')\n"
        "threading.Thread(target=lambda: time.sleep(0.3) or print('saved') or log('lost: %s', 2) or end()).start()\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and ended.stdout.endswith("saved\nat the end\n")
    assert ended.stderr == "metaroll: warning: lost: 2\n"


def test_lines_of_the_help_that_go_on_stand_below_their_beginning(capsys):
    assert main(["--help"]) == 0
    names = capsys.readouterr().out.partition("algorithms, and the environments")[2].partition("first steps")[0]
    begins = [line.index(line.split()[1]) for line in names.splitlines() if line.startswith("  ") and line[2] != " "]
    goes_on = [len(line) - len(line.lstrip()) for line in names.splitlines() if line.startswith("   ")]
    assert goes_on and set(begins) == set(goes_on)


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from metaroll.lab.cli.main import main; main(['--help']); "
        "print([m for m in ('torch', 'gymnasium', 'mujoco', 'matplotlib', 'tyro') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["demo", "resume", "evaluate", "check", "list", "doctor"])
def test_every_command_has_help(capsys, command):
    status, out, _ = run(capsys, command, "--help")
    assert status == 0
    assert "--json" in out
    assert "None" not in out  # what happens without an option is said in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["--vresion"], "unknown option '--vresion'; did you mean '--version'?"),
        (["train"], "both names are missing"),
        (["train", "pearl"], "the environment is missing"),
        (["train", "perl", "point-robot"], "unknown algorithm 'perl'; did you mean 'pearl'"),
        (["demo", "--epoch", "3"], "unknown option --epoch; did you mean --epochs? See metaroll demo --help"),
        (["demo", "--xyz", "3"], "unknown option --xyz; see metaroll demo --help"),
        (["demo", "--out", ""], "--out must name a folder"),
        (["demo", "--num-workers", "100000"], "--num-workers must be at most"),
        (["demo", "--seed", "one"], "--seed must be a whole number, got 'one'"),
        (["demo", "one"], "unexpected argument 'one'"),
        (["resume"], "the folder of the run is missing"),
        (["resume", "no/such/run"], "no/such/run is not a metaroll run directory"),
        (["evaluate", "no/such/run"], "no/such/run is not a metaroll run directory"),
        # the folder may stand before, between and behind the options
        (["resume", "--epochs", "3", "no/such/run"], "no/such/run is not a metaroll run directory"),
        (["resume", "--epochs=3", "no/such/run", "--quiet"], "no/such/run is not a metaroll run directory"),
        (["evaluate", "--json", "no/such/run", "--num_tasks", "3"], "no/such/run is not a metaroll run directory"),
        (["resume", "--epochs", "3"], "the folder of the run is missing"),
        (["resume", "--epochs", "3", "one", "two"], "unexpected argument 'two'"),
        (["resume", "--epoch", "3", "one"], "unknown option --epoch; did you mean --epochs?"),
        (["list", "algorithms"], "unknown topic 'algorithms'; did you mean 'algos'?"),
        (["list", "algos", "envs"], "unexpected argument 'envs'"),
        (["list", "--runs", "no/such/folder"], "--runs must name an existing folder, got 'no/such/folder'"),
        (["list", "--runs", ""], "--runs must name an existing folder, got ''"),
        (["doctor", "--fast"], "unknown option --fast"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error_and_status_2(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("metaroll: error: ")
    assert message in err
    assert "Traceback" not in err


def test_the_traceback_is_shown_when_asked_for(capsys):
    status, _, err = run(capsys, "trian", "--traceback")
    assert status == 2
    assert "Traceback" in err
    assert "metaroll: error: unknown command" in err


@pytest.fixture
def nobody(monkeypatch):
    """No line of a traceback is the user's; those of this module are."""
    monkeypatch.setattr(command_line, "frames_of_user", lambda error: [])


def test_an_internal_error_keeps_its_traceback_and_has_status_1(capsys, monkeypatch, nobody):
    monkeypatch.setattr(command_line, "_dispatch", lambda arguments: {}["no such key"])
    status, _, err = run(capsys, "demo")
    assert status == 1
    assert "Traceback" in err
    assert "internal error" in err


def test_an_error_in_a_file_of_the_user_is_not_internal_and_names_its_lines(capsys, monkeypatch):
    monkeypatch.setattr(command_line, "_dispatch", lambda arguments: {}["no such key"])
    status, _, err = run(capsys, "demo")
    assert status == 1
    assert "Traceback" not in err
    assert err.startswith("metaroll: error: KeyError: 'no such key' in ") and "test_cli_main.py, line " in err


def test_markup_in_a_message_is_shown_as_it_is(capsys, monkeypatch, nobody):
    def fail(arguments):
        raise MetarollError("must lie in [red], got [/x]")

    monkeypatch.setattr(command_line, "_dispatch", fail)
    assert run(capsys, "demo") == (2, "", "metaroll: error: must lie in [red], got [/x]")


def test_ctrl_c_gives_status_130_and_the_command_that_continues(capsys, monkeypatch):
    def interrupted(arguments):
        error = KeyboardInterrupt()
        error.resume_command = "metaroll resume runs/demo"
        raise error

    monkeypatch.setattr(command_line, "_dispatch", interrupted)
    status, out, err = run(capsys, "demo")
    assert (status, out) == (130, "")
    assert err == "metaroll: interrupted; continue with: metaroll resume runs/demo"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_that_end_programs_end_a_run_as_ctrl_c_does(number, code, capsys, monkeypatch):
    def terminated(arguments):
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        except KeyboardInterrupt as error:
            error.resume_command = "metaroll resume runs/demo"
            raise

    before = signal.getsignal(number)
    monkeypatch.setattr(command_line, "_dispatch", terminated)
    status, out, err = run(capsys, "demo")
    assert (status, out) == (code, "")
    assert err == "metaroll: terminated; continue with: metaroll resume runs/demo"
    assert signal.getsignal(number) is before


def test_a_run_under_nohup_goes_on_when_the_terminal_is_gone(capsys, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(command_line, "_dispatch", lambda arguments: os.kill(os.getpid(), signal.SIGHUP) or 0)
        assert run(capsys, "demo")[0] == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("error", "status"), [(OSError(28, "No space left on device"), 1), (MetarollError("no"), 2)])
def test_a_failure_in_a_run_is_one_line_and_the_command_that_continues_it(capsys, monkeypatch, nobody, error, status):
    error.resume_command = "metaroll resume r"
    monkeypatch.setattr(command_line, "_dispatch", lambda arguments: (_ for _ in ()).throw(error))
    assert run(capsys, "demo") == (
        status,
        "",
        f"metaroll: error: {error} what was saved is kept; continue with: metaroll resume r",
    )


def test_python_m_metaroll_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "metaroll", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"metaroll {metaroll.__version__}\n"


def test_a_name_between_colons_is_no_emoji(capsys):
    assert main(["check", "my_env:family:"]) == 2
    assert "'my_env:family:'" in capsys.readouterr().err
    make_console().print("my_env:family: is a family")
    assert capsys.readouterr().out == "my_env:family: is a family\n"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_terminal_breaks_lines_between_words_and_commands_nowhere(capsys, monkeypatch, width):
    command, path = "metaroll resume runs/pearl-point-robot-1 --epochs 20", "/a/folder" * 8
    quoted, install = f"'/my runs{path}'", "pip install 'package>=0.18' 'another-package<2'"
    text = f"what was saved is kept, and `{command}` reads it from {path} again, or {quoted}; {install}; or: {command}"
    monkeypatch.setenv("COLUMNS", str(width))
    for is_terminal in (True, False):
        monkeypatch.setenv("TTY_COMPATIBLE", str(int(is_terminal)))
        make_console().print(text, soft_wrap=True)
        show_problem("error:", text)
        sys.stderr.write(warning_line(text))
        shown = capsys.readouterr()
        lines = re.sub(r"\x1b\[[\d;]*m", "", shown.out + shown.err).splitlines()
        assert " ".join(map(str.strip, lines)) == f"{text} metaroll: error: {text} metaroll: warning: {text}"
        assert sum(f"`{command}`" in line for line in lines) == sum(f" {path}" in f" {line}" for line in lines) == 3
        assert sum(quoted in line for line in lines) == sum(install in line for line in lines) == 3
        assert sum(line.endswith(f" {command}") or line == command for line in lines) == 3
        if is_terminal:
            begins = {line.split()[0] for line in lines if len(line) > width}
            assert begins <= {"`metaroll", "metaroll", "pip", "'/my", path}
        else:
            assert len(lines) == 3


def test_a_module_that_leaves_by_itself_is_an_error_and_no_success(tmp_path, monkeypatch, capsys):
    (tmp_path / "leaving.py").write_text("import sys\n\nsys.exit()\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    for command in (["train", "ppo", "leaving:make"], ["check", "leaving:make"]):
        status, _, err = run(capsys, *command)
        assert status == 2
        assert "leaving.py, line 3" in " ".join(err.split())


def unread(*arguments: str) -> tuple[int, str]:
    """Status, and text on standard error, of the command line when nobody reads its output."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "metaroll", *arguments], stdout=writing, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


def test_output_that_nobody_reads_ends_a_command_quietly():
    assert unread("list", "runs") == (141, "")


def test_a_run_whose_output_nobody_reads_says_how_it_goes_on(tmp_path, monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as unread_output, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", unread_output)
        status = main(["train", "ppo", "Pendulum-v1", "--epochs", "1", "--out", str(tmp_path / "run")])
    told = " ".join(capsys.readouterr().err.split())
    assert status == 141
    assert "what was saved is kept; continue with: metaroll resume" in told and "sys.exit" not in told


def test_lines_on_standard_error_say_whose_they_are():
    """Libraries print lines that begin with ``error:``, too."""
    Path("warns.py").write_text("import warnings\nwarnings.warn('the robot is cold')\nraise ValueError('no robot')\n")
    command = [sys.executable, "-P", "-m", "metaroll", "check", "warns:make"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and "metaroll: warning: the robot is cold" in lines
    assert any(line.startswith("metaroll: error: ") and "no robot" in line for line in lines)
    assert not any(line.startswith(("error:", "warning:")) for line in lines)
