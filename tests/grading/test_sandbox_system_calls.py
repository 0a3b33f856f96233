"""Which system calls the kernel is told to refuse."""

from __future__ import annotations

import errno
import platform
import struct

import pytest

from grading.sandbox.system_calls import is_known, refusals

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED = 0x7FFF0000, 0x80000000
REFUSED, MISSING = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def verdict(program: bytes, machine: str, number: int, argument: int = 0, architecture: int = 0) -> int:
    """What the kernel would say to a call: a small machine for such programs."""
    data = struct.pack("=IIQQ", number, architecture or ARCHITECTURE[machine], 0, argument)
    at = accumulator = 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if operation == RETURN:
            return int(value)
        if operation == LOAD:
            accumulator = struct.unpack_from("=I", data, value)[0]
            continue
        truth = {
            EQUAL: accumulator == value,
            AT_LEAST: accumulator >= value,
            ANY_BIT: accumulator & value != 0,
        }[operation]
        at += if_true if truth else if_false


THREAD, VFORK, NEW_USER, NEW_NET = 0x3D0F00, 0x4111, 0x10000000, 0x40000000
NUMBERS = {
    "x86_64": {
        "refused": [101, 310, 311, 319, 425, 272, 165, 250, 29, 321, 141, 144, 142, 314, 438, 447, 64, 68, 240],
        "closed": [41, 57, 90, 91, 92, 93, 94, 268, 452, 280, 188, 253, 294],
        "allowed": [0, 1, 2, 9, 59, 58, 53, 257, 202, 231, 39, 62, 13, 273],
        "clone": 56, "clone3": 435, "prlimit64": 302, "sched_setaffinity": 203,
    },
    "aarch64": {
        "refused": [117, 270, 271, 279, 425, 97, 40, 219, 194, 280, 140, 119, 118, 274, 438, 447, 190, 186, 180],
        "closed": [198, 52, 53, 54, 55, 452, 88, 5, 26],
        "allowed": [63, 64, 56, 222, 221, 199, 98, 94, 172, 129, 99],
        "clone": 220, "clone3": 435, "prlimit64": 261, "sched_setaffinity": 122,
    },
}  # fmt: skip


@pytest.mark.parametrize("machine", NUMBERS)
@pytest.mark.parametrize("with_namespaces", [True, False])
def test_the_kernel_refuses_what_it_is_told_to_and_nothing_else(machine: str, with_namespaces: bool) -> None:
    program, numbers = refusals(with_namespaces, machine), NUMBERS[machine]
    only_closed = ALLOWED if with_namespaces else REFUSED
    for number in numbers["refused"]:  # type: ignore[attr-defined]
        assert verdict(program, machine, number) == REFUSED, number
    for number in numbers["closed"]:  # type: ignore[attr-defined]
        assert verdict(program, machine, number) == only_closed, number
    for number in numbers["allowed"]:  # type: ignore[attr-defined]
        assert verdict(program, machine, number) == ALLOWED, number


@pytest.mark.parametrize("machine", NUMBERS)
def test_calls_are_refused_by_their_first_argument(machine: str) -> None:
    numbers = NUMBERS[machine]
    for with_namespaces in (True, False):
        program = refusals(with_namespaces, machine)
        clone = numbers["clone"]
        assert verdict(program, machine, numbers["clone3"]) == MISSING  # type: ignore[arg-type]
        assert verdict(program, machine, clone, THREAD) == ALLOWED  # type: ignore[arg-type]
        assert verdict(program, machine, clone, VFORK) == ALLOWED  # type: ignore[arg-type]
        assert verdict(program, machine, clone, NEW_USER | VFORK) == REFUSED  # type: ignore[arg-type]
        assert verdict(program, machine, clone, NEW_NET | THREAD) == REFUSED  # type: ignore[arg-type]
        fork = verdict(program, machine, clone, 17)  # type: ignore[arg-type]
        assert fork == (ALLOWED if with_namespaces else REFUSED)
        for name in ("prlimit64", "sched_setaffinity"):
            assert verdict(program, machine, numbers[name], 0) == ALLOWED  # type: ignore[arg-type]
            assert verdict(program, machine, numbers[name], 77) == REFUSED  # type: ignore[arg-type]


def test_calls_by_other_numbers_end_the_process() -> None:
    program = refusals(True, "x86_64")
    assert verdict(program, "x86_64", 1, architecture=0x40000003) == KILLED
    assert verdict(program, "x86_64", 0x40000000) == KILLED
    assert verdict(refusals(True, "aarch64"), "aarch64", 64, architecture=ARCHITECTURE["x86_64"]) == KILLED


def test_other_processors_are_not_known() -> None:
    assert is_known("x86_64")
    assert is_known("aarch64")
    assert not is_known("riscv64")
    assert is_known() == (platform.machine() in ARCHITECTURE)
