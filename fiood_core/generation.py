"""Lists that a language model writes: asked for once, kept with every raw reply, replayed from then on.

A **generation file** is JSON Lines: a header that says what was asked of which model, then one line a reply, exactly as
it came.  Parsing happens when the file is read, so it can be parsed anew, shared, and replayed without a key.  No
request is made unless the caller allows it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fiood_core import settings
from fiood_core.errors import DataError, InputError
from fiood_core.vocabulary import Vocabulary, VocabularyContext

VERSION = 1
FORMAT = "fiood-generations"
LARGEST_FILE = 1 << 30
MOST = 1000
"""Turns of a conversation, and generations of a file."""

FAILURES = 5
"""Unusable replies after which generating stops."""

CHARACTERS_PER_TOKEN = 3.5
"""For estimates only; a little below English text, so that they err upwards."""

ATTEMPTS = 6
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0

ITEM = re.compile(r"^(?:[-*•]|\d+[.)])\s+(.+)$")
"""A line of a list: a bullet or a number, space, the item."""

Message = dict[str, str]


@dataclass(frozen=True)
class Conversation:
    """Prompts of one conversation, each sent after the reply to the one before.

    Attributes
    ----------
    key : str
        What it is about (a class, or a style), unique within a replicate.
    prompts : tuple of str
    expected_items : int
        Items of one reply, for the estimate of cost.
    """

    key: str
    prompts: tuple[str, ...]
    expected_items: int


@dataclass(frozen=True)
class Reply:
    """One raw reply of a generation file."""

    replicate: int
    key: str
    turn: int
    text: str
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """What the calls that are still to be made will take."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost: float | None

    def __str__(self) -> str:
        cost = "price unknown (give prices to see a cost)" if self.cost is None else f"about ${self.cost:.2f}"
        return f"{self.calls} calls, about {self.input_tokens} tokens in and {self.output_tokens} out: {cost}"


def parse_items(reply: str) -> list[str]:
    """Items of one reply: bulleted or numbered lines, stripped, without a final full stop.

    Raises
    ------
    DataError
        There are none; the reply is shown.
    """
    matches = (ITEM.match(line.strip()) for line in reply.splitlines())
    items = [match.group(1).strip().removesuffix(".").strip() for match in matches if match]
    items = [item for item in items if item]
    if not items:
        shown = reply if len(reply) <= 500 else f"{reply[:500]}…"
        raise DataError(f"a reply holds no list items; it reads: {shown!r}")
    return items


class GeneratedVocabulary(Vocabulary):
    """A vocabulary that is read from a generation file.

    Parameters
    ----------
    generations : str or Path
        The file; by default ``generations/<kind>.jsonl`` under the cache folder (``$FIOOD_HOME``).

    Attributes
    ----------
    kind : str
        What its files are for.
    default_replicates : int
        Independent generations that are asked for unless told otherwise.
    """

    kind: str
    default_replicates: int

    def __init__(self, generations: str | Path | None = None) -> None:
        place = settings.home() / "generations" / f"{self.kind}.jsonl" if generations is None else Path(generations)
        self.path = place.expanduser()

    @abstractmethod
    def conversations(self, id_names: Sequence[str]) -> Sequence[Conversation]:
        """What to ask for one replicate, given the ID names."""

    @cached_property
    def file(self) -> GenerationFile:
        """The generation file, read once."""
        return GenerationFile(self.path)

    @property
    def replicates(self) -> int:  # type: ignore[override]
        """Independent generations in the file; 1 without a file."""
        return max(1, self.file.replicates)

    @property
    def content(self) -> str:  # type: ignore[override]
        """Digest of the generation file; empty without one."""
        return self.file.digest if self.file.header else ""

    def replies(self, context: VocabularyContext) -> dict[str, list[str]]:
        """Raw replies of the context's replicate by conversation.

        Raises
        ------
        DataError
            There is no file, it is for another vocabulary or other ID names, or the replicate is incomplete.
        """
        found = self.file.texts(context.replicate)
        if self.file.header.get("kind") != self.kind:
            raise DataError(f"{self.path} holds generations for {self.file.header.get('kind')!r}, not {self.kind!r}")
        if self.file.header.get("id_names") != names_digest(context.id_names):
            raise DataError(f"{self.path} was generated for other ID names; generate a list for these")
        return found

    @property
    def provenance(self) -> dict[str, Any]:
        """Model, prompts and digest of the file, for a list's record."""
        header = self.file.header
        return {"generations": self.file.digest, "model": header.get("model"), "prompts": header.get("prompts")}


def names_digest(names: Sequence[str]) -> str:
    """SHA-256 of the distinct names, in order, one a line."""
    return hashlib.sha256("".join(f"{name}\n" for name in dict.fromkeys(names)).encode()).hexdigest()


class GenerationFile:
    """The replies to a request, on disk.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    header : dict
        Format, version, kind, model, and the request; empty while the file does not exist.
    replies : dict from (replicate, key, turn) to Reply
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.header: dict[str, Any] = {}
        self.replies: dict[tuple[int, str, int], Reply] = {}
        if self.path.exists():
            self._read()

    @property
    def replicates(self) -> int:
        """How many independent generations the header promises; 0 without a file."""
        return int(self.header.get("replicates", 0))

    @property
    def digest(self) -> str:
        """SHA-256 over header and replies, whatever their order in the file."""
        content = [self.header, *(vars(self.replies[place]) for place in sorted(self.replies))]
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def texts(self, replicate: int) -> dict[str, list[str]]:
        """Replies of a replicate by conversation, in order of turns.

        Raises
        ------
        DataError
            The replicate is not there or not complete.
        """
        if not self.header:
            raise DataError(f"there is no generation file {self.path}; make one with `fiood vocabulary generate`")
        if not 0 <= replicate < self.replicates:
            raise DataError(f"{self.path} holds {self.replicates} generations, there is no generation {replicate}")
        found: dict[str, list[str]] = {}
        for key, turns in self.header["conversations"].items():
            places = [(replicate, key, turn) for turn in range(turns)]
            lacking = [place for place in places if place not in self.replies]
            if lacking:
                raise DataError(
                    f"{self.path} has no reply for {key!r}, turn {lacking[0][2]}, generation {replicate}; "
                    "run `fiood vocabulary generate` again, it asks only for what is missing"
                )
            found[key] = [self.replies[place].text for place in places]
        return found

    def begin(self, header: Mapping[str, Any]) -> None:
        """Write the header, or check that the file was begun with the same one.

        Raises
        ------
        DataError
            The file answers another request.
        """
        wanted = {"format": FORMAT, "version": VERSION, **header}
        if self.header:
            other = sorted(k for k in {*wanted, *self.header} if wanted.get(k) != self.header.get(k))
            if other:
                raise DataError(f"{self.path} was begun with another {', '.join(other)}; choose another file")
            self._drop_torn_line()
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.header = wanted
        self._append(wanted)

    def add(self, reply: Reply) -> None:
        """Append a reply; it is on disk when this returns."""
        self._append({"reply": vars(reply)})
        self.replies[reply.replicate, reply.key, reply.turn] = reply

    def reject(self, reply: Reply, reason: str) -> None:
        """Append a reply that cannot be used, with the reason; it is kept for the record and asked for again."""
        self._append({"rejected": {**vars(reply), "reason": reason}})

    def _append(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _drop_torn_line(self) -> None:
        """Cut off a last line that an interruption left without its end."""
        data = self.path.read_bytes()
        if not data.endswith(b"\n"):
            with self.path.open("r+b") as file:
                file.truncate(data.rfind(b"\n") + 1)

    def _read(self) -> None:
        if self.path.stat().st_size > LARGEST_FILE:
            raise DataError(f"{self.path} is larger than {LARGEST_FILE} bytes; that is no generation file")
        data = self.path.read_bytes()
        lines = data.split(b"\n")[:-1]  # what stands after the last newline was torn by an interruption
        for number, line in enumerate(lines, start=1):
            try:
                content = json.loads(line)
                if number == 1:
                    self.header = _header(content)
                elif "rejected" not in content:
                    reply = _reply(content["reply"])
                    self.replies[reply.replicate, reply.key, reply.turn] = reply
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise DataError(f"{self.path}:{number} is no line of a generation file: {error}") from error


def _header(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"the first line must be a header with format {FORMAT!r}")
    if content.get("version") != VERSION:
        raise ValueError(f"version {content.get('version')!r} is not {VERSION}; update fiood")
    conversations, replicates = content.get("conversations"), content.get("replicates")
    turns = list(conversations.values()) if isinstance(conversations, dict) else []
    if not turns or not all(type(n) is int and 1 <= n <= MOST for n in (*turns, replicates)):
        raise ValueError(f"the header must give conversations and replicates as numbers from 1 to {MOST}")
    return content


def _reply(content: Any) -> Reply:
    reply = Reply(**content)
    if not (type(reply.replicate) is type(reply.turn) is int and isinstance(reply.key, str)):
        raise TypeError("replicate and turn must be integers, and key text")
    if not isinstance(reply.text, str):
        raise TypeError("text must be text")
    return reply


@dataclass(frozen=True)
class Answer:
    """What a server sent: text, why it stopped, the model's refusal if it declined, and the tokens used."""

    text: str
    finish_reason: str | None
    refusal: str | None
    usage: Mapping[str, Any]

    @property
    def problem(self) -> str | None:
        """Why it cannot be used, with the reply; None for a list of items."""
        if self.refusal or self.finish_reason == "content_filter":
            return f"the model declined to answer: {self.refusal or self.text!r}"
        if self.finish_reason == "length":
            return f"the reply was cut off after {len(self.text)} characters; ask for fewer items a call: {self.text!r}"
        try:
            parse_items(self.text)
        except DataError as error:
            return str(error)
        return None


@dataclass
class Client:
    """A chat model behind any server that speaks the OpenAI protocol.

    Parameters
    ----------
    model : str
    base_url : str, optional
        By default OpenAI's.
    api_key : str, optional
        By default ``$OPENAI_API_KEY``; servers that ask for none get a placeholder.
    temperature : float, optional
        Left to the server where None; some models take no other.
    requests_per_minute : float, optional
        Calls are spaced to stay below.
    timeout : float
        Seconds for one reply.
    wait : callable
        Sleeps, in seconds; replaced in tests.
    """

    model: str
    base_url: str | None = None
    api_key: str | None = None
    temperature: float | None = None
    requests_per_minute: float | None = None
    timeout: float = 120.0
    wait: Callable[[float], None] = time.sleep
    _last: float = field(default=-float("inf"), init=False, repr=False)

    def ask(self, messages: Sequence[Message]) -> Answer:
        """The reply to a conversation, as it came.

        Rate limits, time-outs and server errors are tried again with growing waits.

        Raises
        ------
        DataError
            The server refuses the request, does not speak the protocol, or no attempt succeeds.
        InputError
            The run is offline.
        """
        import openai

        if settings.offline():
            raise InputError(f"{self._where} cannot be asked, for this run is offline")
        again = (openai.RateLimitError, openai.APIConnectionError, openai.InternalServerError)
        for attempt in range(ATTEMPTS):
            self._space()
            try:
                return self._answer(self._server().chat.completions.create(**self._request(messages)))
            except again as error:
                if attempt == ATTEMPTS - 1:
                    raise DataError(f"{self._where} gave no reply in {ATTEMPTS} attempts: {error}") from error
                self.wait(_pause(error, attempt))
            except openai.OpenAIError as error:
                raise DataError(f"{self._where} refused the request: {error}") from error
            except (ValueError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{self._where} does not speak the protocol: {type(error).__name__}: {error}"
                ) from error
        raise AssertionError("unreachable")

    @property
    def _where(self) -> str:
        return f"model {self.model!r} at {self.base_url or 'api.openai.com'}"

    def _server(self) -> Any:
        import openai

        key = self.api_key or os.environ.get("OPENAI_API_KEY") or ("none" if self.base_url else None)
        if key is None:
            raise DataError("there is no API key; set OPENAI_API_KEY, or give --base-url of a server that needs none")
        return openai.OpenAI(api_key=key, base_url=self.base_url, timeout=self.timeout, max_retries=0)

    def _request(self, messages: Sequence[Message]) -> dict[str, Any]:
        request: dict[str, Any] = {"model": self.model, "messages": list(messages)}
        if self.temperature is not None:
            request["temperature"] = self.temperature
        return request

    def _answer(self, completion: Any) -> Answer:
        if not getattr(completion, "choices", None):
            raise DataError(f"{self._where} gave a reply without choices: {str(completion)[:300]!r}")
        choice = completion.choices[0]
        usage = completion.usage.model_dump(exclude_none=True) if completion.usage else {}
        refusal = getattr(choice.message, "refusal", None)
        return Answer(choice.message.content or "", choice.finish_reason, refusal, usage)

    def _space(self) -> None:
        if self.requests_per_minute:
            self.wait(max(0.0, self._last + 60.0 / self.requests_per_minute - time.monotonic()))
        self._last = time.monotonic()


def _pause(error: Any, attempt: int) -> float:
    """What the server asks for, else twice as long as before."""
    response = getattr(error, "response", None)
    asked = response.headers.get("retry-after", "") if response is not None else ""
    try:
        seconds = float(asked)
    except ValueError:
        seconds = FIRST_WAIT_SECONDS * 2.0**attempt
    return min(max(seconds, 0.0), LONGEST_WAIT_SECONDS)


def estimate(
    file: GenerationFile,
    conversations: Sequence[Conversation],
    replicates: int,
    prices: tuple[float, float] | None = None,
) -> Estimate:
    """Calls, tokens and cost of what a file still lacks; makes no call.

    Parameters
    ----------
    file : GenerationFile
    conversations : sequence of Conversation
    replicates : int
    prices : (float, float), optional
        Dollars for a million tokens in and out.
    """
    calls = taken = given = 0
    for conversation, _, turn in _lacking(file, conversations, replicates):
        reply = _tokens("- a name of three words\n") * conversation.expected_items
        calls += 1
        taken += sum(map(_tokens, conversation.prompts[: turn + 1])) + reply * turn
        given += reply
    cost = None if prices is None else (taken * prices[0] + given * prices[1]) / 1e6
    return Estimate(calls, taken, given, cost)


def generate(
    file: GenerationFile,
    client: Client,
    kind: str,
    conversations: Sequence[Conversation],
    replicates: int,
    *,
    allow_calls: bool,
    request: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Ask for everything that a generation file lacks, keeping each reply as it comes.

    Interrupted, it goes on where it stopped: no conversation is asked for a reply that the file has.

    Parameters
    ----------
    file : GenerationFile
    client : Client
    kind : str
        The vocabulary it is for.
    conversations : sequence of Conversation
    replicates : int
    allow_calls : bool
        Without it nothing is asked, and something missing is an error.
    request : mapping, optional
        What else decided the prompts, for the header.
    progress : callable, optional
        Called with replies so far and in all.

    Raises
    ------
    InputError
        Calls are needed but not allowed.
    DataError
        The file answers another request, or replies are refused, cut off, or hold no items: each is shown, kept as
        rejected, and asked for again next time.
    """
    lacking = list(_lacking(file, conversations, replicates))
    if lacking and not allow_calls:
        raise InputError(f"{len(lacking)} calls to {client.model!r} are needed; allow them explicitly (--allow-calls)")
    file.begin(
        {
            "kind": kind,
            "model": client.model,
            "temperature": client.temperature,
            "replicates": replicates,
            "conversations": {c.key: len(c.prompts) for c in conversations},
            "prompts": hashlib.sha256(json.dumps([c.prompts for c in conversations]).encode()).hexdigest(),
            **(request or {}),
        }
    )
    failed: dict[tuple[int, str], str] = {}
    for conversation, replicate, turn in lacking:
        if (replicate, conversation.key) in failed:
            continue
        answer = client.ask(_messages(file, conversation, replicate, turn))
        reply = Reply(replicate, conversation.key, turn, answer.text, answer.finish_reason, answer.usage)
        if answer.problem is not None:
            file.reject(reply, answer.problem)
            failed[replicate, conversation.key] = f"{conversation.key!r}, generation {replicate}: {answer.problem}"
            if len(failed) == FAILURES:
                break
            continue
        file.add(reply)
        if progress is not None:
            progress(len(file.replies), replicates * sum(len(c.prompts) for c in conversations))
    if failed:
        raise DataError("\n".join(["replies that cannot be used; run again to ask anew:", *failed.values()]))


def _lacking(
    file: GenerationFile, conversations: Sequence[Conversation], replicates: int
) -> Iterator[tuple[Conversation, int, int]]:
    for replicate in range(replicates):
        for conversation in conversations:
            for turn in range(len(conversation.prompts)):
                if (replicate, conversation.key, turn) not in file.replies:
                    yield conversation, replicate, turn


def _messages(file: GenerationFile, conversation: Conversation, replicate: int, turn: int) -> list[Message]:
    messages: list[Message] = []
    for past in range(turn):
        messages.append({"role": "user", "content": conversation.prompts[past]})
        messages.append({"role": "assistant", "content": file.replies[replicate, conversation.key, past].text})
    return [*messages, {"role": "user", "content": conversation.prompts[turn]}]


def _tokens(text: str) -> int:
    return int(len(text) / CHARACTERS_PER_TOKEN) + 1
