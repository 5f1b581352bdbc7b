"""Section 5: a turn's container, and what the gateway notices when it is not continued."""

from __future__ import annotations

from tests.conformance.kit import Place
from tests.conformance.oneshot.client import OneshotClient
from tests.conformance.oneshot.gateway import Gateway, Turn
from tests.support.waiting import until

FILES = "find . -type f"


def test_a_turn_keeps_its_files_and_its_container(turn: Turn) -> None:
    turn.run("bash", "echo one > a.txt")
    second = turn.run("python", "print(open('a.txt').read(), end='')", {"in.txt": b"x"})
    assert second["stdout"] == "one\n"
    assert "workdir_reset" not in second
    assert len(set(turn.seen)) == 1
    assert turn.container


def test_temporary_files_stay_in_a_lease(turn: Turn) -> None:
    turn.run("bash", "echo tmp > /tmp/b")
    assert turn.run("bash", "cat /tmp/b")["stdout"] == "tmp\n"


def test_a_failing_script_keeps_the_container(turn: Turn) -> None:
    turn.run("bash", "echo one > a.txt")
    assert turn.run("bash", "exit 9")["exit_code"] == 9
    assert turn.run("bash", "cat a.txt")["stdout"] == "one\n"
    assert len(set(turn.seen)) == 1


def test_python_state_is_not_kept_in_a_lease(turn: Turn) -> None:
    turn.run("python", "x = 1")
    assert "NameError" in turn.run("python", "print(x)")["stderr"]


def test_a_lost_container_is_replaced_in_silence_and_noted(turn: Turn) -> None:
    turn.run("bash", "echo one > a.txt")
    lost = turn.container
    assert lost
    turn.client.release(lost)
    again = turn.run("bash", f"{FILES}; echo two > b.txt")
    assert (again["stdout"], again["exit_code"]) == ("", 0)
    assert "workdir_reset" in again
    assert turn.container
    assert turn.container != lost
    assert "workdir_reset" not in turn.run("bash", "cat b.txt")


def test_an_unknown_container_is_a_fresh_request(client: OneshotClient) -> None:
    for unknown in ("sbx-1-2-3", "no/such id"):
        ran = client.run("bash", "pwd", container_id=unknown)
        assert (ran.raw["exit_code"], ran.container) == (0, None)
        kept = client.run("bash", "pwd", container_id=unknown, keep_alive=True)
        assert kept.container not in (None, unknown)
        client.release(str(kept.container))


def test_a_late_run_ends_the_lease(turn: Turn) -> None:
    turn.run("bash", "echo one > a.txt")
    late = turn.run("bash", "sleep 60", timeout_secs=1)
    assert late["timed_out"] is True
    assert "workdir_reset" in late
    assert turn.container is None
    assert turn.run("bash", FILES)["stdout"] == ""


def test_fresh_is_another_container(turn: Turn) -> None:
    turn.run("bash", "echo one > a.txt")
    first = turn.container
    fresh = turn.run("bash", FILES, fresh=True)
    assert fresh["stdout"] == ""
    assert "workdir_reset" not in fresh
    assert turn.container != first
    assert turn.client.run("bash", FILES, container_id=first).raw["stdout"] == "", "the old one was released"


def test_a_reused_container_is_kept_whatever_keep_alive_says(client: OneshotClient) -> None:
    lease = client.run("bash", "echo one > a.txt", keep_alive=True).container
    assert lease
    last = client.run("bash", "cat a.txt", container_id=lease, keep_alive=False)
    assert last.raw["stdout"] == "one\n"
    assert last.container in (lease, None)
    client.release(lease)


def test_the_end_of_a_turn_lets_go(client: OneshotClient) -> None:
    turn = Turn(client)
    turn.run("bash", "echo one > a.txt")
    held = turn.container
    turn.end()
    assert client.run("bash", FILES, container_id=held).raw["stdout"] == ""


def test_leases_do_not_see_each_other(client: OneshotClient) -> None:
    turns = [Turn(client) for _ in range(2)]
    for number, each in enumerate(turns):
        each.run("bash", f"echo {number} > mine; echo {number} > /tmp/mine")
    assert [each.run("bash", f"cat mine /tmp/mine; {FILES}")["stdout"] for each in turns] == [
        "0\n0\n./mine\n",
        "1\n1\n./mine\n",
    ]
    for each in turns:
        each.end()


def test_more_leases_than_there_may_be_are_single_runs(small: OneshotClient) -> None:
    first = small.run("bash", "echo 1 > a", keep_alive=True)
    assert first.container
    second = small.run("bash", "echo done", keep_alive=True)
    assert (second.raw["stdout"], second.container) == ("done\n", None)
    assert small.run("bash", "cat a", container_id=first.container, keep_alive=True).raw["stdout"] == "1\n"
    small.release(first.container)


def test_an_idle_lease_is_swept(brief: OneshotClient) -> None:
    lease = brief.run("bash", "echo 1 > a", keep_alive=True).container
    assert lease
    until(lambda: brief.run("bash", "true", keep_alive=True).container, "the idle lease made room")
    assert brief.run("bash", FILES, container_id=lease).raw["stdout"] == ""


def test_what_a_script_leaves_running_lives_as_long_as_the_lease(turn: Turn) -> None:
    serve = "import socket, os\ns = socket.socket(socket.AF_UNIX); s.bind('/tmp/d.sock'); s.listen()\nwhile 1:\n"
    serve += "    c, _ = s.accept(); c.sendall(str(os.getpid()).encode()); c.close()\n"
    start = "setsid nohup python3 d.py > /dev/null 2>&1 &\n"
    start += "for n in $(seq 300); do [ -S /tmp/d.sock ] && break; sleep 0.1; done"
    turn.run("bash", start, {"d.py": serve.encode()})
    ask = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/tmp/d.sock'); print(s.recv(99).decode())"
    first, second = turn.run("python", ask), turn.run("python", ask)
    assert first["stdout"].strip().isdigit(), first
    assert first["stdout"] == second["stdout"]
    turn.end()
    assert "FileNotFoundError" in turn.run("python", ask)["stderr"]


def test_the_gateway_offers_what_the_probe_allows(client: OneshotClient, place: Place) -> None:
    gateway = Gateway(client).start()
    assert gateway.egress is False, "no network is configured here, and that is known"
    assert not gateway.offers_network
    assert "browse_page" not in gateway.tools
    unreachable = Gateway(OneshotClient("http://127.0.0.1:9")).start()
    assert (unreachable.egress, unreachable.offers_network) == (None, True)
    assert "browse_page" in unreachable.tools
    unreachable.client.close()


def test_video_in_two_passes_of_one_lease(client: OneshotClient) -> None:
    """As ``render_video`` does: the first pass keeps, the second reuses with ``keep_alive`` off."""
    first = client.run("bash", "echo probe", {"in0.bin": b"x"}, keep_alive=True)
    second = client.run("bash", "cat in0.bin > video.mp4", container_id=first.container, keep_alive=False)
    assert list(second.artifacts) == ["video.mp4"]
    assert first.container
    client.release(first.container)
