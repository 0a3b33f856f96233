"""`pdm run chat`: a conversation with the model in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs import options
from programs.chat_commands import Commands
from programs.chat_screen import Screen
from programs.conversation import Conversation, Turn
from programs.cores import PAGE_SIZE, require_memory, warm_up
from programs.implementation import WHOSE, WayAround, require_written
from programs.loaded import LoadedModel, running
from programs.source import Source, choose_source
from programs.stages import SERVED

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.params import SamplingParams

WAYS_AROUND = {
    (2, 3): WayAround("--matmul plain", needs=(2, 2)),
    (3, 3): WayAround("--attention reference", needs=(3, 2)),
    (3, 4): WayAround("--attention auto", needs=(3, 3)),
}


def chat(
    context: typer.Context,
    impl: options.ImplOption = Impl.LEARNER,
    model: options.ModelOption = "smollm2-135m",
    dtype: options.DtypeOption = options.Dtype.FLOAT32,
    device: options.DeviceOption = options.Device.CPU,
    attention: options.AttentionOption = options.Attention.AUTO,
    bits: options.BitsOption = None,
    matmul: options.MatmulOption = options.Matmul.AUTO,
    fast: options.FastOption = False,
    pages: Annotated[
        int, typer.Option(min=1, help=f"How many pages of {PAGE_SIZE} tokens the engine has.")
    ] = 1024,
    system: Annotated[
        str | None, typer.Option(help="The system message; left out, what the model's chat form has.")
    ] = None,
    max_tokens: options.MaxTokensOption = 512,
    temperature: options.TemperatureOption = 0.0,
    top_k: options.TopKOption = 0,
    top_p: options.TopPOption = 1.0,
    min_p: options.MinPOption = 0.0,
    repetition_penalty: options.RepetitionPenaltyOption = 1.0,
    seed: options.SeedOption = None,
) -> None:
    """Chat with the model: each answer as it comes, and the next message goes on from there.

    /help lists the commands. Ctrl-C stops an answer; at the prompt, a second Ctrl-C leaves.

    In a pipe each line of the input is a message, and standard output has nothing but the answers. Exit code 1 when
    a line got none.
    """
    source = choose_source(context, Source(model, dtype, device, bits, matmul, attention), fast)
    with running(impl, WAYS_AROUND) as course:
        require_written(course, impl, SERVED.day, needed=True)
        params = make_params(
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        )
        loaded = source.load(course, impl)
        require_memory(loaded.model, pages)
        warm_up(source.attention, loaded.model)
        screen = Screen()
        with make_llm(loaded, pages, source.attention) as llm, screen.open():
            if screen.interactive:
                whose, folder = WHOSE[impl]
                screen.note(f"{model}, run by {whose}, {folder}: /help lists the commands, Ctrl-D leaves")
            complete = talk(Conversation(llm, params, system), screen)
    if not complete and not screen.interactive:
        raise typer.Exit(1)


def make_params(**params: Any) -> SamplingParams:
    """The settings of every answer.

    Raises:
        CourseError: a value is out of range.
    """
    from tiny_llm.engine.params import SamplingParams

    try:
        return SamplingParams(**params)
    except ValueError as error:
        raise CourseError(str(error)) from None


def make_llm(loaded: LoadedModel, pages: int, attention: str) -> LLM:
    """The engine of Day 4.6 around a model that is loaded."""
    from tiny_llm.engine.limits import Limits
    from tiny_llm.engine.llm import LLM

    limits = Limits(num_pages=pages, page_size=PAGE_SIZE)
    return LLM(loaded.model, loaded.tokenizer, limits=limits, attention=attention, enable_chunk_aware=True)


def talk(conversation: Conversation, screen: Screen) -> bool:
    """Answer messages and run commands until no more come; whether each line could be answered or run."""
    commands, complete = Commands(conversation, screen), True
    for line in screen.lines():
        if line.startswith("/"):
            complete &= commands.run(line)
        elif line.strip():
            complete &= answer(conversation, line, screen)
        if commands.left:
            break
    return complete


def answer(conversation: Conversation, text: str, screen: Screen) -> bool:
    """Answer one message, or say why it can't be; whether it was answered.

    Raises:
        CourseError: the engine runs no more.
    """
    from tiny_llm.ragged.errors import Closed, EngineFailed
    from tiny_llm.weights import WeightsError

    try:
        with screen.stopping(conversation.stop):
            turn = conversation.answer(text, screen.write)
    except (ValueError, WeightsError) as error:
        screen.note(f"{error}. The message was not sent{_advice(conversation)}")
        return False
    except EngineFailed as error:
        screen.write("\n")
        screen.note(f"the answer has failed: {error}")
        return False
    except Closed as error:
        raise CourseError(f"the engine runs no more: {error}") from None
    screen.write("\n")
    why = ending(conversation, turn)
    if why:
        screen.note(why)
    return True


def _advice(conversation: Conversation) -> str:
    """What to do about a message that there is no room for."""
    ways = ["; /reset forgets the conversation so far"] if conversation.messages else []
    if conversation.documents:
        ways.append("; /documents leaves the documents out")
    return "".join(ways)


def ending(conversation: Conversation, turn: Turn) -> str:
    """Why an answer ends here, if not because the model has ended it."""
    if turn.finish is None:
        return (
            "stopped" if turn.text else "stopped before it began: the message is not part of the conversation"
        )
    if turn.finish != "length":
        return ""
    if len(turn.timing.arrivals) == conversation.params.max_tokens:
        return f"cut off at --max-tokens {conversation.params.max_tokens}"
    return f"there is no room for more: the model has {conversation.llm.core.max_positions:,} positions, see /reset"
