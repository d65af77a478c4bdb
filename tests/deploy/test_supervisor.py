import asyncio
import io
import os
import signal
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.local.console import Console
from deploy.local.launcher import Launcher
from deploy.local.supervisor import Program, StartFailed, Supervisor
from tests.deploy.standins import has_ended, lines, pids, python, sleeper
from tests.lab.waiting import wait_until

Scenario = Callable[[Supervisor], Coroutine[object, object, None]]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def supervised(scenario: Scenario, directory: Path) -> str:
    """Play the scenario, end everything, return what the console printed."""
    printed = io.StringIO()
    console = Console(printed)

    async def play() -> None:
        with Launcher(directory / "processes.json") as launcher:
            supervisor = Supervisor(launcher, console)
            try:
                await scenario(supervisor)
            finally:
                await supervisor.stop()

    asyncio.run(play())
    console.close()
    return printed.getvalue()


def test_it_starts_again_what_was_killed(journal: Path, tmp_path: Path) -> None:
    """Set-up: one supervisor that restarts what dies."""

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start([Program(sleeper("worker", journal))])
        for round_ in (1, 2):
            begun = await asyncio.to_thread(_pids, journal, "worker", round_)
            os.kill(begun[-1], signal.SIGKILL)
        await asyncio.to_thread(_pids, journal, "worker", 3)

    printed = supervised(scenario, tmp_path)

    assert "up           | worker killed by signal 9, starts again in 0.5 s" in printed
    assert "up           | worker killed by signal 9, starts again in 1 s" in printed
    assert all(map(has_ended, pids(journal, "worker")))


def test_it_ends_programs_after_those_that_need_them(journal: Path, tmp_path: Path) -> None:
    """Set-up: ends cleanly, in reverse order."""

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start(
            [
                Program(sleeper("api", journal), after=("worker", "store")),
                Program(sleeper("worker", journal), after=("store",)),
                Program(
                    sleeper("store", journal),
                    is_ready=lambda: bool(pids(journal, "store")),
                ),
            ]
        )
        await asyncio.to_thread(lambda: [_pids(journal, name, 1) for name in ("api", "worker")])

    supervised(scenario, tmp_path)

    assert lines(journal)[0].startswith("store began")
    assert lines(journal)[3:] == ["api ended", "worker ended", "store ended"]


def test_a_program_that_keeps_ending_fails_the_start_with_its_last_words(tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        broken = python("broken", "import sys; sys.exit('no such module')")
        await supervisor.start([Program(broken, is_ready=lambda: False)])

    with pytest.raises(StartFailed, match=r"broken keeps ending\n    no such module"):
        supervised(scenario, tmp_path)


def test_a_program_that_does_not_get_ready_in_time_fails_the_start(tmp_path: Path) -> None:
    async def scenario(supervisor: Supervisor) -> None:
        slow = python("slow", "import time; time.sleep(60)")
        await supervisor.start([Program(slow, is_ready=lambda: False, ready_within_s=0.3)])

    with pytest.raises(StartFailed, match="slow did not become ready"):
        supervised(scenario, tmp_path)


def test_a_program_that_ignores_the_request_is_killed_after_its_grace(tmp_path: Path) -> None:
    deaf = python(
        "deaf",
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf now")
        time.sleep(60)
        """,
        grace_s=0.3,
    )

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start([Program(deaf, ready_line="deaf now")])

    assert "deaf does not end and is killed" in supervised(scenario, tmp_path)


def test_hurry_kills_at_once_what_has_a_long_grace(tmp_path: Path) -> None:
    deaf = python(
        "deaf",
        """
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("deaf now")
        time.sleep(60)
        """,
        grace_s=60,
    )

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start([Program(deaf, ready_line="deaf now")])
        asyncio.get_running_loop().call_later(0.2, supervisor.hurry)

    assert "deaf does not end and is killed" in supervised(scenario, tmp_path)


def test_children_of_a_killed_program_are_gone_before_it_starts_again(
    journal: Path, tmp_path: Path
) -> None:
    """The children of a killed server would hold its port."""
    parent = python(
        "parent",
        """
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        with open(sys.argv[1], "a") as journal:
            journal.write(f"parent began {os.getpid()}\\nchild began {child.pid}\\n")
        time.sleep(60)
        """,
        journal,
    )

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.start([Program(parent)])
        (child,) = await asyncio.to_thread(_pids, journal, "child", 1)
        os.kill(pids(journal, "parent")[0], signal.SIGKILL)
        await asyncio.to_thread(_pids, journal, "parent", 2)
        assert has_ended(child)

    supervised(scenario, tmp_path)


def test_output_of_any_form_becomes_prefixed_lines(tmp_path: Path) -> None:
    """Set-up: readable, prefixed output."""
    odd = python(
        "odd",
        r"""
        import sys, time
        out = sys.stdout.buffer
        out.write(b"first\nsecond\r\n\xff bytes\n" + b"x" * 200_000 + b"\nno end of line")
        out.flush()
        """,
    )

    async def scenario(supervisor: Supervisor) -> None:
        await supervisor.run_once(odd)

    printed = supervised(scenario, tmp_path).splitlines()

    assert all(line.startswith("odd          | ") for line in printed)
    texts = [line.removeprefix("odd          | ") for line in printed]
    assert texts[:3] == ["first", "second", "\N{REPLACEMENT CHARACTER} bytes"]
    assert texts[-1] == "no end of line"
    assert sum(text.count("x") for text in texts) == 200_000


def test_a_reader_that_stands_still_does_not_hold_programs_up(tmp_path: Path) -> None:
    talker = python("talker", "for n in range(50_000): print(n)")
    read, write = os.pipe()
    with ThreadPoolExecutor() as threads, os.fdopen(read) as reader:  # noqa: SIM117
        with os.fdopen(write, "w") as stream:  # closed before the reader is
            console = Console(stream)

            async def play() -> None:
                with Launcher(tmp_path / "processes.json") as launcher:
                    await Supervisor(launcher, console).run_once(talker)

            asyncio.run(asyncio.wait_for(play(), 30))
            printed = threads.submit(reader.read)
            console.close(timeout=30)

    assert "lines were not shown" in printed.result()


def _pids(journal: Path, name: str, count: int) -> list[int]:
    return wait_until(lambda: begun if len(begun := pids(journal, name)) >= count else [])
