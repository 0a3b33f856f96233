"""The gate lets the steps through that it should, and no thread waits behind it for long."""

from __future__ import annotations

from toys import PATIENCE, in_time

from window.gate import Gate, Mode

SHORT = 0.001  # seconds to wait where nothing may come


def test_in_play_every_step_may_begin_at_once() -> None:
    gate = Gate()
    assert [gate.wait(SHORT) for _ in range(3)] == [True] * 3


def test_in_pause_no_step_may_begin_and_the_thread_comes_back() -> None:
    gate = Gate(Mode.PAUSE)
    assert [gate.wait(SHORT) for _ in range(2)] == [False] * 2


def test_one_step_lets_exactly_one_step_through_and_pauses() -> None:
    gate = Gate(Mode.PLAY)
    gate.step()
    assert gate.mode is Mode.PAUSE
    assert [gate.wait(SHORT) for _ in range(3)] == [True, False, False]


def test_two_single_steps_that_are_asked_for_at_once_are_both_made() -> None:
    gate = Gate(Mode.PAUSE)
    gate.step()
    gate.step()
    assert [gate.wait(SHORT) for _ in range(3)] == [True, True, False]


def test_a_single_step_that_has_not_begun_is_forgotten_when_the_mode_changes() -> None:
    gate = Gate(Mode.PAUSE)
    gate.step()
    gate.set(Mode.PAUSE)
    assert not gate.wait(SHORT)


def test_in_play_a_step_does_not_use_up_a_later_single_step() -> None:
    gate = Gate(Mode.PLAY)
    assert gate.wait(SHORT)
    gate.step()
    assert [gate.wait(SHORT), gate.wait(SHORT)] == [True, False]


def test_in_slow_motion_a_step_begins_no_sooner_than_its_time_after_the_one_before() -> None:
    now = [100.0]
    gate = Gate(Mode.SLOW, slow_seconds=0.5, clock=lambda: now[0])
    assert gate.wait(0)
    assert not gate.wait(0)
    now[0] += 0.4375
    assert not gate.wait(0)
    now[0] += 0.0625
    assert gate.wait(0)
    now[0] += 0.25
    assert not gate.wait(0)


def test_a_thread_that_waits_goes_on_as_soon_as_the_mode_allows_it() -> None:
    for change in (lambda gate: gate.set(Mode.PLAY), Gate.step, Gate.open_for_good):
        gate, passed = Gate(Mode.PAUSE), list[bool]()
        thread = in_time(lambda gate=gate, passed=passed: passed.append(gate.wait(PATIENCE)))  # type: ignore[misc]
        change(gate)
        thread.join(PATIENCE / 2)
        assert passed == [True]


def test_a_gate_that_is_open_for_good_lets_every_step_through_in_every_mode() -> None:
    gate = Gate(Mode.PAUSE)
    gate.open_for_good()
    for mode in Mode:
        gate.set(mode)
        assert [gate.wait(SHORT) for _ in range(2)] == [True] * 2, mode


def test_each_change_of_the_mode_has_a_version_of_its_own() -> None:
    gate = Gate()
    versions = [gate.version]
    for change in (lambda: gate.set(Mode.SLOW), gate.step, lambda: gate.set(Mode.PLAY)):
        change()
        versions.append(gate.version)
    assert len(set(versions)) == 4
