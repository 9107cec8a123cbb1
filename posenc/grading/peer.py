"""Call a function that lives in another process. Both sides are the same: either may call what it was given.

The side that marks gives layers and other functions as arguments, and the learner's function calls them back. A
function that a call returns can be called too. Gradients flow through: each side keeps its own graph.
"""

import builtins
import itertools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from posenc.checks.calling import Effort, Elsewhere, capture, in_words, steady
from posenc.grading import wire
from posenc.grading.limits import Ending, Limits, ending_of

LARGEST_REQUEST = 16_000_000  # bytes of numbers with which a learner's function may call one of ours

# Classes of exceptions that may be raised again on the other side: Python's own, by name.
ERRORS = {n: e for n, e in vars(builtins).items() if isinstance(e, type) and issubclass(e, Exception)}


class Budget(Protocol):
    """What all calls together may take."""

    effort: Effort

    def ending(self) -> Ending | None:
        """Why there shall be no further call, if it is so."""


class Peer:
    """One end of a pair of pipes. Once the budget is spent, or the other process has ended, every call raises Closed.

    We have a budget; a learner's functions, on the other end, have none.
    """

    def __init__(self, read: int, write: int, limits: Limits, budget: Budget | None = None):
        self.read, self.write, self.limits, self.budget = read, write, limits, budget
        self.learners = budget is None  # whether the functions here are a learner's, who may change what they are given
        self.ending: Ending | None = None  # how the other process ended, if it said so
        self.exports: dict[int, Any] = {}
        self.imports: dict[int, Tensor] = {}  # graph tensors of the other side, as leaves of ours
        self.numbers = itertools.count(1)
        self.broken = False  # once true, nothing that comes is believed

    def export(self, value: Any) -> int:
        if isinstance(value, RemoteFunction) and value.peer is self:
            return -value.target  # it comes home
        number = next(self.numbers)
        self.exports[number] = value
        return number

    def call(self, target: int | str, arguments: tuple, keywords: dict) -> Any:
        """Call over there. Raises what was raised there (Python's own kinds; others as RuntimeError)."""
        with torch._C.DisableTorchFunction():  # whoever watches what is computed here shall not see our packing
            return self._call(target, arguments, keywords)

    def _call(self, target: int | str, arguments: tuple, keywords: dict) -> Any:
        before = (arguments, keywords)
        inputs: list[Tensor] = []  # those arguments that belong to our graph
        reply, buffer = self._request({"op": "call", "target": target}, before, inputs)
        reader = wire.Reader(buffer, self._function, lambda tensor, number: self._attach(tensor, number, inputs))
        value = reader.read(reply.get("value"))
        if "after" in reply:
            copy_into(before, reader.read(reply["after"]))
        return value

    def _request(self, message: dict, content: Any, inputs: list[Tensor] | None = None) -> tuple[dict, bytes]:
        """Send, answer whatever is asked meanwhile, and return the reply. `inputs` collects the graph's inputs."""

        def export(value: Any) -> int:
            if isinstance(value, Tensor) and inputs is not None:
                inputs.append(value)
            return self.export(value)

        if not self.broken and self.budget and (ending := self.budget.ending()):
            self.broken, self.ending = True, ending
        if self.broken:
            raise self._closed()
        writer = wire.Writer(export)
        message["content"] = writer.write(content)
        self.broken = True  # until the answer is there: time may run out, rubbish may come
        wire.send(self.write, message, writer.buffers)
        while True:
            reply, buffer = wire.receive(self.read)
            if reply.get("op") in ("return", "raise"):
                break
            if reply.get("op") == "ended":
                self.ending = ending_of(as_status(reply), self.limits)
                raise self._closed()
            if len(buffer) > LARGEST_REQUEST:
                raise wire.Malformed(f"a function was called with {len(buffer):,} bytes")
            self.answer(reply, buffer)
        self.broken = False
        if reply["op"] == "raise":
            raise raised(reply)
        if printed := reply.get("printed"):
            print(str(printed), end="")
        return reply, buffer

    def _closed(self) -> wire.Closed:
        closed = wire.Closed("the process is gone, or has lost the thread")
        if self.ending:
            closed.in_words = self.ending[1]
        return closed

    def answer(self, message: dict, buffer: bytes) -> None:
        """Do what the other side asks, and reply."""
        reader = wire.Reader(buffer, self._function, self._leaf)
        if message.get("op") == "call":
            function = self._target(message.get("target"))
            arguments, keywords = reader.read(message.get("content"))
            self._run(function, arguments, keywords)
        elif message.get("op") == "gradients":
            self._gradients(message, reader)
        else:
            raise wire.Malformed(f"an unknown request {str(message.get('op'))[:40]!r}")

    def _target(self, target: Any) -> Callable:
        function = self.exports.get(target) if isinstance(target, int) else None
        if not callable(function):
            raise wire.Malformed("a call of something that was never given")
        return function

    def _run(self, function: Callable, arguments: tuple, keywords: dict) -> None:
        before = self._image(arguments, keywords)
        try:
            value, printed = self._value(function, arguments, keywords)
        except BaseException as error:
            if not (self.learners or isinstance(error, Exception)):
                raise  # our time is up while we served a call from over there: nobody there may catch that
            self._send({"op": "raise", **described(function, error)}, None)
            return
        message = {"op": "return", "printed": printed} if printed else {"op": "return"}
        writer = wire.Writer(self.export)
        message["value"] = writer.write(value)
        if self._image(arguments, keywords) != before:
            message["after"] = writer.write((arguments, keywords))
        try:
            wire.send(self.write, message, writer.buffers)
        except wire.Malformed as error:  # too large
            self._send({"op": "raise", **described(function, ValueError(str(error)))}, None)

    def _value(self, function: Callable, arguments: tuple, keywords: dict) -> tuple[Any, str]:
        """What a function returns, and what it prints. Ours are called in the midst of a call, which is steady."""
        if not self.learners:
            return function(*arguments, **keywords), ""
        with capture() as printed, steady():
            return function(*arguments, **keywords), printed.text

    def _image(self, *values: Any) -> Any:
        """By which a change of these values can be noticed. Our own functions change nothing."""
        if not self.learners:
            return None
        writer = wire.Writer(lambda _: 0)
        return writer.write(values), writer.buffers

    def _send(self, message: dict, content: Any) -> None:
        writer = wire.Writer(self.export)
        message["value"] = writer.write(content)
        wire.send(self.write, message, writer.buffers)

    def _gradients(self, message: dict, reader: wire.Reader) -> None:
        """d(outputs) / d(inputs), where the outputs are ours and the inputs came from the other side."""
        given = reader.read(message.get("content"))
        output = self.exports[message["output"]]
        inputs = [self.imports[number] for number in message["inputs"]]
        gradients = torch.autograd.grad(output, inputs, given, retain_graph=True, allow_unused=True)
        self._send({"op": "return"}, gradients)

    def _function(self, number: int) -> Callable:
        return self._target(-number) if number < 0 else RemoteFunction(self, number)

    def _leaf(self, tensor: Tensor, number: int) -> Tensor:
        self.imports[number] = tensor.requires_grad_()
        return self.imports[number]

    def _attach(self, tensor: Tensor, number: int, inputs: list[Tensor]) -> Tensor:
        numbers = [key for key, value in self.exports.items() if any(value is each for each in inputs)]
        inputs = [self.exports[key] for key in numbers]
        return RemoteGraph.apply(self, number, numbers, tensor, *inputs)


class RemoteFunction(Elsewhere):
    """A function of the other side. Call it like any other."""

    def __init__(self, peer: Peer, target: int | str, name: str = "function"):
        self.peer, self.target = peer, target
        self.spent = peer.budget.effort if peer.budget else None
        self.__name__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.peer.call(self.target, arguments, keywords)


class RemoteGraph(torch.autograd.Function):
    """Gives a tensor of the other side its place in our graph: its backward asks over there."""

    @staticmethod
    def forward(ctx: Any, peer: Peer, output: int, numbers: list[int], tensor: Tensor, *inputs: Tensor) -> Tensor:
        ctx.peer, ctx.output, ctx.numbers = peer, output, numbers
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        message = {"op": "gradients", "output": ctx.output, "inputs": ctx.numbers}
        reply, buffer = ctx.peer._request(message, gradients[0])
        received = wire.Reader(buffer, ctx.peer._function, lambda tensor, _: tensor).read(reply.get("value"))
        return None, None, None, None, *received


def as_status(message: dict) -> int:
    """What a message says of how a process ended, whoever wrote it."""
    status = message.get("status")
    return status if type(status) is int and 0 <= status < 2**16 else 256


def described(function: Callable, error: BaseException) -> dict[str, str]:
    """An exception in a few words. Its class travels by name, if Python has it."""
    kind = next((c.__name__ for c in type(error).__mro__ if ERRORS.get(c.__name__) is c), "RuntimeError")
    return {"type": kind, "message": str(error)[:2000], "words": in_words(function, error)}


def raised(reply: dict) -> Exception:
    error = ERRORS.get(str(reply.get("type")), RuntimeError)
    try:
        exception = error(str(reply.get("message"))[:2000])
    except TypeError:  # UnicodeDecodeError and its like want five arguments
        exception = RuntimeError(str(reply.get("message"))[:2000])
    exception.in_words = str(reply.get("words"))[:400]
    return exception


def copy_into(before: Any, after: Any) -> None:
    """What the other side did to its copy of the arguments is done to ours too, so that it can be noticed."""
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        if before.shape == after.shape and before.dtype == after.dtype:
            with torch.no_grad():
                before.copy_(after)
        else:
            before.data = after.detach()
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) == len(after):
            _copy_each(before, after)
        else:
            before[:] = after
    elif isinstance(before, tuple) and isinstance(after, tuple):
        _copy_each(before, after)
    elif isinstance(before, dict) and isinstance(after, dict):
        before.update(after)


def _copy_each(before: Any, after: Any) -> None:
    for i, (old, new) in enumerate(zip(before, after, strict=False)):
        if isinstance(old, (Tensor, list, tuple, dict)):
            copy_into(old, new)
        elif isinstance(before, list):
            before[i] = new
