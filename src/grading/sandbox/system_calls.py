"""The system calls that a confined process is refused, as a program for the kernel (seccomp, classic BPF).

Folders and namespaces don't cover all: a process may set another one's limits or priority, change the modes of
files that it can't open, keep memory in places that count for no process, or read the keys of its user.
"""

from __future__ import annotations

import errno
import platform
import struct

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_…
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF's operations
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16  # in the kernel's struct seccomp_data
_X32 = 0x40000000  # a second way to call the kernel on x86_64
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW…
_THREAD_OR_PROGRAM = 0x00014000  # CLONE_THREAD, CLONE_VFORK

# name: (x86_64, aarch64); None where the call doesn't exist.
_ALWAYS: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # memory that counts for no process
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    # the kernel's keys
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # ways around the rest
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "personality": (135, 92),
}

_WITHOUT_NAMESPACES: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "socket": (41, 198),  # two sockets that are joined to one another (socketpair) remain
    # Landlock doesn't keep these from files outside of the rooms
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
}

_OF_ITSELF_ONLY = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122)}
_CLONE, _CLONE3 = (56, 220), (435, 435)


def is_known(machine: str = platform.machine()) -> bool:
    """Whether there is such a program for this kind of processor."""
    return machine in _ARCHITECTURES


def refusals(with_namespaces: bool, machine: str = platform.machine()) -> bytes:
    """The program.

    A refused call fails with EPERM. ``clone3`` seems not to exist (the C library then takes ``clone``, whose
    flags can be read here); a call by another architecture's numbers ends the process.

    Args:
        with_namespaces: the process has a network, mounts and process numbers of its own; else more has to be
        refused.
    """
    column = list(_ARCHITECTURES).index(machine)
    refused = _ALWAYS if with_namespaces else {**_ALWAYS, **_WITHOUT_NAMESPACES}
    program = [
        _do(_LOAD, _ARCHITECTURE_AT),
        _do(_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _do(_RETURN, _KILL),
        _do(_LOAD, _NUMBER_AT),
    ]
    if machine == "x86_64":
        program += [_do(_AT_LEAST, _X32, 0, 1), _do(_RETURN, _KILL)]
    program += _refuse(_CLONE3[column], errno.ENOSYS)
    for numbers in refused.values():
        number = numbers[column]
        program += _refuse(number, errno.EPERM) if number is not None else []
    program += _clone(_CLONE[column], with_namespaces)
    for both in _OF_ITSELF_ONLY.values():
        program += _by_argument(both[column], _do(_EQUAL, 0, 1, 0))
    return b"".join([*program, _do(_RETURN, _ALLOW)])


def _do(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; a jump skips so many of those that follow."""
    return struct.pack("=HBBI", operation, if_true, if_false, value)


def _refuse(number: int, error: int) -> list[bytes]:
    return [_do(_EQUAL, number, 0, 1), _do(_RETURN, _ERRNO | error)]


def _clone(number: int, with_namespaces: bool) -> list[bytes]:
    """Refuse new namespaces. Without a namespace of processes, only threads and other programs can be started:
    copies of a process (fork) are started faster than they can be ended."""
    if with_namespaces:
        return _by_argument(number, _do(_ANY_BIT, _NEW_NAMESPACES, 0, 1))
    return [
        _do(_EQUAL, number, 0, 5),
        _do(_LOAD, _FIRST_ARGUMENT_AT),
        _do(_ANY_BIT, _NEW_NAMESPACES, 1, 0),
        _do(_ANY_BIT, _THREAD_OR_PROGRAM, 1, 0),
        _do(_RETURN, _ERRNO | errno.EPERM),
        _do(_RETURN, _ALLOW),
    ]


def _by_argument(number: int, test: bytes) -> list[bytes]:
    """Refuse the call unless the test of its first argument skips the refusal."""
    return [
        _do(_EQUAL, number, 0, 4),
        _do(_LOAD, _FIRST_ARGUMENT_AT),
        test,
        _do(_RETURN, _ERRNO | errno.EPERM),
        _do(_RETURN, _ALLOW),
    ]
