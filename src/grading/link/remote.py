"""What stands on one side for an object of the other."""

from __future__ import annotations

from typing import Any

from coursekit.arrays import Elsewhere

BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and_", "or_", "xor", "lshift", "rshift"),
)
UNARY = ("neg", "pos", "abs", "invert")
COMPARISONS = ("lt", "le", "gt", "ge")
"""Names in :mod:`operator`. `eq` and `ne` are missing on purpose."""
READABLE = (
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__wrapped__",
    "__dict__",
    "__self__",
    "__func__",
)
"""Names between double underscores that are read on the other side."""


class Remote(Elsewhere):
    """An object of the other side: whatever is done with it is done there.

    There is one for each object there, and it equals nothing but itself: what the other side says about equality
    counts for nothing here.
    """

    __slots__ = ("__weakref__", "_count", "_kind", "_link", "_number")
    __array_ufunc__ = None  # NumPy leaves operators to this class

    def __init__(self, link: Any, number: int, kind: str) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_count", 1)

    def __del__(self) -> None:
        count = self._count
        object.__setattr__(self, "_count", 0)  # another thread may find it just now: see End._theirs
        self._link.give_back(self._number, count)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in READABLE:
            raise AttributeError(name)  # Python and libraries ask for many, to see what an object can do
        return self._link.read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.write("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._link.write("delattr", self, name)

    def answer(self, question: str, *others: Any) -> Any:
        return self._link.ask(question, self, others)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._link.call("call", self, arguments, tuple(options.items()))

    def __iter__(self) -> Any:
        return self._link.call("iter", self)

    def __next__(self) -> Any:
        return self._link.call("next", self)

    def __len__(self) -> int:
        return self._link.call("len", self)

    def __bool__(self) -> bool:
        return self._link.call("bool", self) is True

    def __int__(self) -> int:
        return self._link.call("int", self)

    def __float__(self) -> float:
        return self._link.call("float", self)

    def __index__(self) -> int:
        return self._link.call("index", self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        array = self.answer("to_numpy")
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, key: Any) -> Any:
        return self._link.call("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._link.call("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._link.call("delitem", self, key)

    def __contains__(self, value: Any) -> bool:
        return self._link.call("contains", self, value) is True

    def __enter__(self) -> Any:
        return self._link.call("enter", self)

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        return self._link.call("exit", self, value) is True

    def __repr__(self) -> str:
        return str(self._link.call("repr", self))

    def __str__(self) -> str:
        return str(self._link.call("str", self))


class RemoteMethod:
    """A method of an object of the other side: a call is a single one there, too.

    It goes by its name, until :meth:`hold` has given it the method itself.
    """

    def __init__(self, owner: Remote, name: str) -> None:
        self._owner = owner
        self._name = name
        self._held: Any = None

    def hold(self, method: Any) -> None:
        if self._held is None:
            self._held = method

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._held is not None:
            return self._held(*arguments, **options)
        return self._owner._link.call(
            "call method", self._owner, self._name, arguments, tuple(options.items())
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in READABLE:
            raise AttributeError(name)
        link = self._owner._link
        itself = link.call("getattr", self._owner, self._name) if self._held is None else self._held
        return link.read(itself, name)


class StandsFor:
    """An object of this side that crosses as the one of the other side which it names."""

    _remote: Remote


def _binary(name: str) -> tuple[Any, Any]:
    def forward(self: Remote, other: Any) -> Any:
        return self._link.call("operator", name, self, other)

    def backward(self: Remote, other: Any) -> Any:
        return self._link.call("operator", name, other, self)

    return forward, backward


def _unary(name: str) -> Any:
    return lambda self: self._link.call("operator", name, self)


for _name in BINARY:
    _plain = _name.strip("_")
    _forward, _backward = _binary(_name)
    setattr(Remote, f"__{_plain}__", _forward)
    setattr(Remote, f"__r{_plain}__", _backward)
for _name in UNARY:
    setattr(Remote, f"__{_name}__", _unary(_name))
for _name in COMPARISONS:
    setattr(Remote, f"__{_name}__", _binary(_name)[0])


class RemoteClass(type):
    """The metaclass of what stands for a class of the other side; see :meth:`grading.link.end.End.class_for`."""

    _remote: Remote

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RemoteClass:
        """A class statement of the grader's that derives from one of the other side: the class is made there."""
        first: Any = bases[0]
        made: RemoteClass = first._remote._link.derive(mcls, name, bases, namespace)
        return made

    def __init__(cls, *arguments: Any) -> None:
        """Nothing: :meth:`__new__` has done it."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        return cls._remote(*arguments, **options)

    @property  # type: ignore[misc]
    def __dict__(cls) -> Any:  # type: ignore[override]
        """That of the class over there: pytest's `monkeypatch` looks into it for what to put back."""
        return cls._remote.__dict__

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or name == "_remote":
            raise AttributeError(name)
        return getattr(cls._remote, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(cls._remote, name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(cls._remote, name)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Remote) and value._link.call("isinstance", value, cls._remote) is True

    def __subclasscheck__(cls, value: Any) -> bool:
        return (
            isinstance(value, RemoteClass)
            and value._remote._link.call("issubclass", value._remote, cls._remote) is True
        )
