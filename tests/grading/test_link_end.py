"""What a test can do with objects of the learner's code, and what that code can do with objects of a test."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import CancelledError, Future
from dataclasses import FrozenInstanceError, dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from two_ends import linked

from coursekit.checking.comparison import CheckFailed
from grading.link.errors import LeftByCode
from grading.link.lanes import Gone
from grading.link.wire import WireError


class Base:
    """A class of the learner's."""

    shared = 3

    def __init__(self, start: int = 1) -> None:
        self.value = start
        self.items = [start]

    def add(self, more: int, *, twice: bool = False) -> int:
        self.value += more * (1 + twice)
        self.items.append(self.value)
        return self.value

    def run(self) -> str:
        return f"run by {self.step()}"

    def step(self) -> str:
        return "base"

    def __len__(self) -> int:
        return 7

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter(self.items)

    def __getitem__(self, key: Any) -> Any:
        return ("item", key)

    def __contains__(self, value: Any) -> bool:
        return value == 5

    def __add__(self, other: int) -> int:
        return self.value + other

    def __radd__(self, other: int) -> int:
        return other - self.value

    def __lt__(self, other: Any) -> bool:
        return True

    def __neg__(self) -> int:
        return -self.value

    def __enter__(self) -> Base:
        self.entered = True
        return self

    def __exit__(self, *error: Any) -> bool:
        self.left = [str(part) for part in error[1:2]]
        return error[0] is KeyError


class Refused(ValueError):
    """An error of the learner's, with an attribute."""

    def __init__(self, message: str, place: int = 0) -> None:
        super().__init__(message, place)
        self.place = place

    def __str__(self) -> str:
        return f"refused: {self.args[0]}"


class Worse(Refused, LookupError):
    pass


def raising(error: BaseException) -> Any:
    def call(*arguments: Any) -> None:
        raise error

    return call


CODE = SimpleNamespace(
    Base=Base,
    Refused=Refused,
    Worse=Worse,
    apply=lambda function, *arguments: function(*arguments),
    same=lambda a, b: a is b,
    echo=lambda value: value,
    read=lambda target, name: getattr(target, name),
    write=lambda target, name, value: setattr(target, name, value),
    remove=lambda target, name: delattr(target, name),
    rows=lambda: np.arange(6.0).reshape(2, 3),
    kind=lambda value: type(value).__name__,
    each=lambda values: [value for value in values if True],
)


@pytest.fixture
def code():
    with linked(CODE) as (code, _):
        yield code


def test_attributes_are_read_written_and_deleted_there(code):
    item = code.Base(4)
    assert (item.value, item.items, item.shared) == (4, [4], 3)
    item.value = 9
    assert item.add(1) == 10
    item.extra = "x"
    del item.extra
    with pytest.raises(AttributeError, match="extra"):
        _ = item.extra
    assert not hasattr(item, "extra")


def test_calls_take_arguments_of_both_kinds(code):
    item = code.Base()
    assert item.add(2) == 3
    assert item.add(2, twice=True) == 7  # now known as a method, so another way
    with pytest.raises(TypeError):
        item.add()


def test_a_method_that_is_replaced_is_the_new_one(code):
    item = code.Base()
    assert [item.add(1), item.add(1)] == [2, 3]
    item.add = lambda more: "new"
    assert item.add(1) == "new"
    del item.add
    assert item.add(1) == 4


@pytest.mark.parametrize("known", [False, True])
def test_a_method_that_was_taken_stays_what_it_was(code, known):
    item = code.Base()
    if known:
        item.add(0)
    whole, other = item.add, code.Base(5).add
    item.add = lambda more: whole(2 * more)
    assert item.add(3) == 7
    assert code.apply(whole, 1) == 8
    assert whole.__name__ == "add"
    del item.add
    code.Base.add, original = lambda self, more: "new", code.Base.add
    assert item.add(1) == "new"
    assert [whole(1), other(1)] == [9, 6]
    code.Base.add = original


def test_a_method_can_be_handed_back(code):
    item = code.Base()
    for _ in range(2):
        assert code.apply(item.add, 1) == item.value


def test_len_bool_iteration_items_and_operators_are_asked_there(code):
    item = code.Base(2)
    assert len(item) == 7
    assert not item
    assert list(item) == [2]
    assert item[1, ..., 2:3] == ("item", (1, ..., slice(2, 3)))
    assert 5 in item
    assert 6 not in item
    assert (item + 1, 10 + item, -item) == (3, 8, -2)
    assert item < 0


def test_equality_is_never_asked_there(code):
    item, other = code.Base(), code.Base()
    assert item != other
    assert item != 1
    assert (item == other) is False
    assert item == item
    assert len({item, other, item}) == 2


def test_an_object_has_one_stand_in_at_a_time(code):
    item = code.Base()
    assert code.echo(item) is item
    assert code.same(item, item)
    assert not code.same(item, code.Base())


def test_a_with_block_enters_and_leaves_there(code):
    item = code.Base()
    with item as entered:
        assert entered is item
        assert item.entered
    assert item.left == ["None"]
    with item:
        raise KeyError("k")
    with pytest.raises(IndexError), item:
        raise IndexError("i")
    assert item.left == ["i"]


def test_classes_are_classes_here(code):
    item = code.Base()
    assert isinstance(item, code.Base)
    assert not isinstance(item, code.Refused)
    assert not isinstance(1, code.Base)
    assert callable(code.Base)
    assert code.Base is code.Base
    assert code.Base.shared == 3
    assert code.Base.__name__ == "Base"
    assert type(item).__name__ == "Base"
    code.Base.shared = 4
    try:
        assert item.shared == 4
    finally:
        code.Base.shared = 3


def test_an_array_comes_as_a_numpy_array(code):
    rows = code.rows()
    assert type(rows) is np.ndarray
    np.testing.assert_array_equal(rows, np.arange(6.0).reshape(2, 3))


def test_lists_of_the_learners_follow_it(code):
    item = code.Base(1)
    items = item.items
    item.add(1)
    assert items == [1, 2]
    item.items.append(9)
    assert item.items == [1, 2, 9]
    assert items is item.items


def test_an_error_comes_as_pythons_own(code):
    with pytest.raises(ZeroDivisionError, match="division"):
        code.apply(lambda: code.echo(1) / 0)
    with pytest.raises(TypeError, match="int"):
        code.Base() + "a"
    with pytest.raises(StopIteration):
        next(code.end_of_things)


def test_the_learners_error_is_caught_by_its_class_and_those_above(code):
    for caught in (code.Worse, code.Refused, ValueError, LookupError):
        with pytest.raises(caught, match="refused: no") as info:
            code.apply(raising_there(code, "Worse"))
        assert info.value.place == 3
        assert info.value.args == ("no", 3)
    with pytest.raises(code.Refused):
        code.apply(raising_there(code, "Refused"))
    with pytest.raises(ValueError, match="refused") as info:
        code.apply(raising_there(code, "Refused"))
    assert not isinstance(info.value, code.Worse)


def raising_there(code: Any, name: str) -> Any:
    """A function of the learner's side that raises its error."""
    return getattr(code, f"raise_{name}")


CODE.raise_Worse = raising(Worse("no", 3))
CODE.raise_Refused = raising(Refused("no", 3))
CODE.end_of_things = iter(())
CODE.errors = [Refused("a value", 2)]


def inner(number: int) -> int:
    return 1 // number


def outer(number: int) -> int:
    return inner(number - 2)


@dataclass(frozen=True)
class Frozen:
    x: int = 1


CODE.outer = outer
CODE.freeze = lambda: setattr(Frozen(), "x", 2)
CODE.raise_interrupt = raising(KeyboardInterrupt())
CODE.raise_skip = raising(pytest.skip.Exception("no"))
CODE.raise_exit = raising(SystemExit(0))
CODE.raise_key = raising(KeyError("k"))
CODE.raise_check = raising(CheckFailed("the loop is missing"))
CODE.raise_group = raising(ExceptionGroup("two", [ValueError("a"), TypeError("b")]))


def test_the_lines_of_the_learners_code_are_in_the_traceback(code):
    with pytest.raises(KeyError) as info:
        code.raise_key()
    last = info.traceback[-1]
    assert last.name == "call"
    assert str(last.path) == __file__
    assert [line.strip() for line in last.statement.lines] == ["raise error"]


@pytest.mark.parametrize(
    ("name", "ends"), [("raise_exit", True), ("raise_interrupt", False), ("raise_skip", False)]
)
def test_an_error_that_would_end_the_program_or_the_test_is_a_failure(code, name, ends):
    with pytest.raises(LeftByCode) as info:
        getattr(code, name)()
    assert info.value.ends_program is ends


def test_all_frames_of_an_error_are_told(code):
    with pytest.raises(ZeroDivisionError) as info:
        code.outer(2)
    lines = [(frame.name, frame.line) for frame in traceback.extract_tb(info.tb)[-2:]]
    assert lines == [("outer", "return inner(number - 2)"), ("inner", "return 1 // number")]


def test_errors_of_pythons_own_modules_are_those_of_this_side(code):
    with pytest.raises(FrozenInstanceError):
        code.freeze()


def test_a_test_may_end_the_learners_code():
    ended = []

    def careless(function: Any) -> None:
        try:
            function()
        except Exception as error:
            ended.append(error)

    with linked(SimpleNamespace(careless=careless)) as (code, _):
        error = SystemExit(3)
        with pytest.raises(SystemExit) as info:
            code.careless(raising(error))
    assert info.value is error
    assert not ended, "what ends a program is no Exception there either"


def test_the_cancelling_of_a_future_is_the_error_of_that_name():
    future: Future[int] = Future()
    future.cancel()
    with linked(future) as (there, _), pytest.raises(CancelledError):
        there.result()


def test_an_error_of_the_checks_is_the_one_of_this_side(code):
    with pytest.raises(CheckFailed, match="the loop is missing"):
        code.raise_check()


def test_an_error_that_can_t_be_made_anew_keeps_its_words(code):
    with pytest.raises(Exception, match="two"):
        code.raise_group()


@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), RuntimeError("x", 2)])
def test_an_error_of_the_tests_comes_back_as_that_very_one(code, error):
    with pytest.raises(type(error)) as info:
        code.apply(raising(error))
    assert info.value is error


def test_an_error_class_of_the_tests_comes_back(code):
    class Broken(Exception):
        pass

    error = Broken("on purpose")
    with pytest.raises(Broken) as info:
        code.apply(raising(error))
    assert info.value is error


def test_an_error_of_the_learners_class_raised_by_a_test_is_one_there(code):
    with pytest.raises(code.Refused) as info:
        code.apply(raising(code.Refused("by the test", 4)))
    assert info.value.args == ("by the test", 4)


def test_the_learner_catches_what_a_test_raises():
    caught = []

    def careful(function: Any) -> str:
        try:
            function()
        except Refused as error:
            caught.append(error.place)
            return "refused"
        except (KeyError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    with linked(SimpleNamespace(careful=careful, Refused=Refused)) as (code, _):
        assert code.careful(raising(code.Refused("x", 5))) == "refused"
        assert caught == [5]
        assert code.careful(raising(KeyError("k"))) == "KeyError: 'k'"
        assert code.careful(raising(OSError(2, "gone"))) == "FileNotFoundError: [Errno 2] gone"
        assert code.careful(lambda: 1) == "nothing"


def test_a_cause_comes_too():
    def fail() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    with linked(SimpleNamespace(fail=fail)) as (code, _):
        with pytest.raises(ValueError, match="outer") as info:
            code.fail()
        assert isinstance(info.value.__cause__, KeyError)


class Fake:
    """An object of a test's."""

    secret = "the expected value"

    def __init__(self) -> None:
        self.value = 1
        self.items = [1]
        self._hidden = 2
        self.told: list[Any] = []

    def tell(self, what: Any) -> int:
        self.told.append(what)
        return len(self.told)

    def run(self) -> Fake:
        return self

    def __repr__(self) -> str:
        return f"Fake(secret={self.secret})"


def test_the_learner_may_use_what_a_test_hands_in(code):
    fake = Fake()
    assert code.read(fake, "value") == 1
    assert code.apply(code.read(fake, "tell"), "a") == 1
    assert fake.told == ["a"]
    assert code.read(fake, "items") is fake.items
    assert code.apply(code.read(fake, "run")) is fake
    code.write(fake, "value", 5)
    assert fake.value == 5
    assert code.each(value * 2 for value in (1, 2)) == [2, 4]


@pytest.fixture
def forging():
    """A learner's side that asks the link itself, past what stands for the test's objects."""

    def ask(operation: str, target: Any, *arguments: Any) -> Any:
        remote = target.__dict__["remote"] if isinstance(target, FunctionType) else target
        link = (remote._remote if isinstance(remote, type) else remote)._link  # type: ignore[attr-defined]
        return link.call(operation, remote, *arguments)

    with linked(SimpleNamespace(ask=ask)) as (code, _):
        yield code


@pytest.mark.parametrize("name", ["secret", "_hidden", "__class__", "__dict__", "told", "__init__"])
def test_the_learner_reads_no_attribute_that_it_was_not_granted(forging, name):
    fake = Fake()
    assert forging.ask("getattr", fake, "value") == 1
    for operation, *rest in (("getattr",), ("setattr", 1), ("delattr",), ("call method", (), ())):
        with pytest.raises(AttributeError):
            forging.ask(operation, fake, name, *rest)
    assert fake._hidden == 2
    assert Fake.secret == "the expected value"


@pytest.mark.parametrize(
    "closed", [Fake.tell, Fake().tell, len, np], ids=["function", "method", "builtin", "module"]
)
@pytest.mark.parametrize("name", ["value", "run", "missing", "__globals__", "__self__", "__dict__"])
def test_the_learner_can_t_look_into_functions_methods_and_modules(forging, monkeypatch, closed, name):
    monkeypatch.setattr(np, "missing", 1, raising=False)
    with pytest.raises(AttributeError):
        forging.ask("getattr", closed, name)


def test_the_learner_can_t_look_into_classes(forging, monkeypatch):
    monkeypatch.setattr(Fake, "missing", "x", raising=False)
    assert forging.ask("getattr", Fake(), "missing") == "x"
    for name in ("missing", "tell", "secret", "__mro__", "__subclasses__"):
        with pytest.raises(AttributeError):
            forging.ask("getattr", Fake, name)


def test_what_a_tests_object_says_of_itself_tells_nothing():
    texts = SimpleNamespace(repr=repr, str=str, format="{}".format)
    with linked(texts) as (there, _):
        assert there.repr(Fake()) == "<Fake>"
        assert there.str(Fake()) == "<Fake>"
        assert there.str(KeyError("k")) == "'k'"


def test_an_exception_that_is_a_value_is_one_here_and_there(code):
    found = code.errors[0]
    assert isinstance(found, code.Refused)
    assert found.place == 2
    assert code.kind(KeyError("k")) == "KeyError"
    error = KeyError("k")
    assert code.echo(error) is error


@pytest.mark.parametrize(
    "operation",
    [
        "isinstance",
        "issubclass",
        "to_numpy",
        "names",
        "derive",
        "call base",
        "framework",
        "span",
        "no such thing",
    ],
)
def test_the_learners_side_may_ask_for_few_operations(operation):
    ends = []

    def ask(fake: Any) -> Any:
        return fake._link.call(operation, fake)

    with linked(SimpleNamespace(ask=ask)) as (code, end):
        ends.append(end)
        with pytest.raises(TypeError, match="no operation"):
            code.ask(Fake())


def test_a_number_that_was_never_handed_out_is_refused():
    def forge(fake: Any) -> Any:
        object.__setattr__(fake, "_number", 10**6)
        return fake.value

    with linked(SimpleNamespace(forge=forge)) as (code, _), pytest.raises((WireError, KeyError, Gone)):
        code.forge(Fake())


def test_a_class_statement_derives_from_the_learners_class(code):
    seen = []

    class Noting(code.Base):  # type: ignore[name-defined]
        """Notes steps."""

        limit = 12

        def __init__(self, start: int) -> None:
            super().__init__(start)
            self.mine = "own"

        def step(self) -> str:
            seen.append(self.value)
            return f"noting, above {super().step()}"

        @property
        def doubled(self) -> int:
            return self.value * 2

        @staticmethod
        def plain(x: int) -> int:
            return x + 1

    item = Noting(5)
    assert item.run() == "run by noting, above base"
    assert seen == [5]
    assert (item.mine, item.limit, item.doubled, item.plain(1)) == ("own", 12, 10, 2)
    assert item.add(1) == 6
    assert isinstance(item, Noting)
    assert isinstance(item, code.Base)
    assert not isinstance(code.Base(), Noting)
    assert type(item).__name__ == "Noting"


def test_a_class_can_derive_from_a_derived_one(code):
    class First(code.Base):  # type: ignore[name-defined]
        def step(self) -> str:
            return "first, " + super().step()

    class Second(First):
        def step(self) -> str:
            return "second, " + super().step()

    assert Second().run() == "run by second, first, base"


def test_a_function_of_the_tests_becomes_a_method_of_the_learners_class(code):
    item, own = code.Base(8), code.Base.step
    code.Base.step = lambda self: f"patched {self.value}"
    try:
        assert item.run() == "run by patched 8"
    finally:
        code.Base.step = own
    assert item.run() == "run by base"


def test_a_method_of_a_class_that_was_patched_is_put_back():
    class Patched:
        def step(self) -> str:
            return "its own"

    class Above(Patched):
        pass

    with (
        linked(SimpleNamespace(Patched=Patched, Above=Above)) as (code, _),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(code.Patched, "step", lambda self: "patched")
        patch.setattr(code.Above, "step", lambda self: "patched above")
        assert (Patched().step(), Above().step()) == ("patched", "patched above")
        patch.undo()
        assert "step" not in vars(Above)
        assert Patched().step() == "its own"


def test_threads_call_at_the_same_time_and_each_gets_its_own_answer(code):
    found: dict[int, list[int]] = {}
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        barrier.wait()
        found[number] = [code.apply(lambda x: code.echo(x) + 1, number * 100 + n) for n in range(20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: [number * 100 + n + 1 for n in range(20)] for number in range(8)}


def test_a_thread_of_the_learners_calls_the_tests_objects():
    def start(fake: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: fake.tell("from a thread"))
        thread.start()
        return thread

    fake = Fake()
    with linked(SimpleNamespace(start=start)) as (code, _):
        code.start(fake).join(30)
        assert fake.told == ["from a thread"]


def test_lanes_end_with_their_threads(code):
    for _ in range(30):
        thread = threading.Thread(target=lambda: code.echo(1))
        thread.start()
        thread.join(30)
    code.echo(1)
    assert len(code._link._lanes._lanes) < 10


def test_objects_are_given_back():
    class Kept:
        alive = 0

        def __init__(self) -> None:
            Kept.alive += 1

        def __del__(self) -> None:
            Kept.alive -= 1

    with linked(SimpleNamespace(Kept=Kept, echo=lambda x: x)) as (code, _):
        items = [code.Kept() for _ in range(3)]
        assert Kept.alive == 3
        del items
        code.echo(1)
        assert Kept.alive == 0


def test_a_call_when_the_other_side_is_gone_says_so():
    with linked(CODE) as (code, end):
        item = code.Base()
    assert end.gone
    with pytest.raises(Gone):
        item.add(1)


def test_what_can_t_cross_is_refused_and_the_link_goes_on(code):
    with pytest.raises(WireError, match="object"):
        code.echo(np.array([object()]))
    assert code.echo(1) == 1


def test_a_result_that_can_t_cross_is_an_error_and_the_link_goes_on():
    def nested() -> Any:
        value: Any = 1
        for _ in range(1000):
            value = [value]
        return value

    with linked(SimpleNamespace(nested=nested, echo=lambda x: x)) as (code, _):
        with pytest.raises(ValueError, match="deep"):
            code.nested()
        assert code.echo(2) == 2
