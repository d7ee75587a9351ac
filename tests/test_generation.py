"""The client and the generation file against a server over loopback that speaks the protocol."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fiood_core.errors import DataError, InputError
from fiood_core.generation import Client, Conversation, GenerationFile, estimate, generate, parse_items

openai = pytest.importorskip("openai")


def completion(text, finish_reason="stop", refusal=None):
    message = {"role": "assistant", "content": text, "refusal": refusal}
    return {
        "id": "1", "object": "chat.completion", "created": 0, "model": "toy",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    }  # fmt: skip


class Server:
    """Answers each request with the next of its scripted answers, the last one for ever."""

    def __init__(self):
        self.script, self.requests = [completion("- Okapi\n- Fern")], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, self.headers.get("Authorization"), json.loads(body)))
                answer = outer.script.pop(0) if len(outer.script) > 1 else outer.script[0]
                status, headers, content = answer if isinstance(answer, tuple) else (200, {}, answer)
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server():
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()


@pytest.fixture
def waits():
    return []


@pytest.fixture
def client(server, waits, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return Client("toy", base_url=server.url, wait=waits.append)


ONE = [Conversation("list", ("Name two.",), 2)]
TWO_TURNS = [Conversation("list", ("Name two.", "Two more."), 2), Conversation("other", ("Name two.",), 2)]


def test_replies_are_kept_raw_and_replayed_without_key_or_server(server, client, tmp_path):
    path = tmp_path / "lists" / "eoe.jsonl"
    generate(GenerationFile(path), client, "eoe", TWO_TURNS, 2, allow_calls=True)
    assert len(server.requests) == 6
    again = GenerationFile(path)
    assert again.texts(1) == {"list": ["- Okapi\n- Fern"] * 2, "other": ["- Okapi\n- Fern"]}
    assert again.header["model"] == "toy"
    assert again.replies[0, "list", 0].usage == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    generate(again, client, "eoe", TWO_TURNS, 2, allow_calls=False)
    assert len(server.requests) == 6


def test_a_follow_up_is_sent_with_what_was_said_before(server, client, tmp_path):
    generate(GenerationFile(tmp_path / "x.jsonl"), client, "eoe", TWO_TURNS[:1], 1, allow_calls=True)
    path, authorization, body = server.requests[1]
    assert (path, authorization) == ("/v1/chat/completions", "Bearer none")
    assert [m["content"] for m in body["messages"]] == ["Name two.", "- Okapi\n- Fern", "Two more."]
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]


def test_nothing_is_asked_without_leave(server, client, tmp_path):
    with pytest.raises(InputError, match="1 calls to 'toy' are needed; allow them"):
        generate(GenerationFile(tmp_path / "x.jsonl"), client, "eoe", ONE, 1, allow_calls=False)
    assert not server.requests
    assert not (tmp_path / "x.jsonl").exists()


def test_an_interrupted_generation_asks_for_nothing_twice(server, client, tmp_path):
    path = tmp_path / "x.jsonl"
    classes = [Conversation(name, (f"Siblings of {name}.",), 2) for name in ("tench", "hen", "collie")]

    class Interrupt(Exception):
        pass

    def stop_after_two(done, _total):
        if done == 2:
            raise Interrupt

    with pytest.raises(Interrupt):
        generate(GenerationFile(path), client, "s", classes, 1, allow_calls=True, progress=stop_after_two)
    with path.open("a") as file:
        file.write('{"reply": {"key": "collie", "te')
    generate(GenerationFile(path), client, "s", classes, 1, allow_calls=True)
    asked = [body["messages"][0]["content"] for _, _, body in server.requests]
    assert asked == ["Siblings of tench.", "Siblings of hen.", "Siblings of collie."]
    assert list(GenerationFile(path).texts(0)) == ["tench", "hen", "collie"]


def test_rate_limits_wait_as_long_as_the_server_asks(server, client, waits, tmp_path):
    limited = {"error": {"message": "slow down", "type": "rate_limit"}}
    server.script = [(429, {"retry-after": "7"}, limited), (429, {}, limited), completion("- Okapi")]
    generate(GenerationFile(tmp_path / "x.jsonl"), client, "eoe", ONE, 1, allow_calls=True)
    assert waits == [7.0, 2.0]


def test_a_server_that_never_answers_ends_with_its_reason(server, client, waits, tmp_path):
    server.script = [(503, {}, {"error": {"message": "warming up"}})]
    with pytest.raises(DataError, match=r"no reply in 6 attempts.*warming up"):
        generate(GenerationFile(tmp_path / "x.jsonl"), client, "eoe", ONE, 1, allow_calls=True)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_requests_are_spaced_to_the_rate_limit(client, waits):
    client.requests_per_minute = 2
    client.ask([{"role": "user", "content": "a"}])
    client.ask([{"role": "user", "content": "b"}])
    assert waits[0] == 0
    assert 29 < waits[1] <= 30


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (completion("I would rather write a poem."), "no list items; it reads: 'I would rather write a poem.'"),
        (completion(""), "no list items"),
        (completion("- Okapi\n- Fe", finish_reason="length"), "cut off after 12 characters"),
        (completion(None, refusal="I cannot help with that."), "declined to answer: 'I cannot help"),
        (completion("- Okapi", finish_reason="content_filter"), "declined to answer"),
    ],
)
def test_a_reply_that_is_no_list_is_shown_kept_as_rejected_and_asked_again(server, client, tmp_path, answer, reason):
    path = tmp_path / "x.jsonl"
    server.script = [answer]
    with pytest.raises(DataError, match="cannot be used") as error:
        generate(GenerationFile(path), client, "eoe", ONE, 1, allow_calls=True)
    assert reason in str(error.value)
    assert '"rejected"' in path.read_text()
    server.script = [completion("- Okapi")]
    generate(GenerationFile(path), client, "eoe", ONE, 1, allow_calls=True)
    assert GenerationFile(path).texts(0) == {"list": ["- Okapi"]}


def test_one_refusal_does_not_stop_the_other_classes(server, client, tmp_path):
    server.script = [completion(None, refusal="no"), completion("- Okapi")]
    classes = [Conversation(name, ("List.",), 2) for name in ("a", "b")]
    with pytest.raises(DataError, match="'a', generation 0"):
        generate(GenerationFile(tmp_path / "x.jsonl"), client, "s", classes, 1, allow_calls=True)
    assert (0, "b", 0) in GenerationFile(tmp_path / "x.jsonl").replies


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {}, b"{truncated"), "does not speak the protocol|refused the request"),
        ((200, {"Content-Type": "text/html"}, b"<html>login</html>"), "without choices.*login"),
        ({"choices": []}, "without choices"),
        ((401, {}, {"error": {"message": "bad key"}}), "refused the request.*bad key"),
    ],
)
def test_what_is_no_completion_is_refused(server, client, answer, message):
    server.script = [answer]
    with pytest.raises(DataError, match=message):
        client.ask([{"role": "user", "content": "a"}])


def test_a_missing_key_is_asked_for_before_any_call(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(DataError, match="OPENAI_API_KEY"):
        Client("gpt").ask([{"role": "user", "content": "a"}])


def test_the_estimate_counts_only_what_is_missing(client, tmp_path):
    file = GenerationFile(tmp_path / "x.jsonl")
    before = estimate(file, TWO_TURNS, 2, prices=(1.0, 10.0))
    assert (before.calls, before.cost) == (6, (before.input_tokens + 10 * before.output_tokens) / 1e6)
    generate(file, client, "eoe", TWO_TURNS, 2, allow_calls=True)
    assert estimate(file, TWO_TURNS, 2).calls == 0
    assert "price unknown" in str(estimate(file, TWO_TURNS, 2))


def test_a_file_of_another_request_is_not_mixed(client, tmp_path):
    file = GenerationFile(tmp_path / "x.jsonl")
    generate(file, client, "eoe", ONE, 1, allow_calls=True)
    with pytest.raises(DataError, match="begun with another replicates"):
        generate(file, client, "eoe", ONE, 2, allow_calls=True)


@pytest.mark.parametrize(
    "line",
    [
        '{"format": "other"}',
        '{"format": "fiood-generations", "version": 2}',
        '{"format": "fiood-generations", "version": 1, "conversations": {"a": 1e99}, "replicates": 1}',
        "[1]",
        "nonsense",
    ],
)
def test_a_foreign_file_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=r"x\.jsonl:1 is no line of a generation file"):
        GenerationFile(path)


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(DataError, match="fiood vocabulary generate"):
        GenerationFile(tmp_path / "x.jsonl").texts(0)


def test_items_are_bulleted_or_numbered_lines():
    assert parse_items("Sure:\n- Okapi.\n * Fern\n3. Sea fan\n4) Kelp\n• Moss\n-Lavender\n\n- ") == [
        "Okapi", "Fern", "Sea fan", "Kelp", "Moss",
    ]  # fmt: skip


# -- from the command line ------------------------------------------------------------------------------------------


@pytest.fixture
def names(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("tench\nhen\ncollie\n")
    return str(path)


@pytest.fixture
def fiood(monkeypatch, tmp_path, server):
    """Runs a `fiood vocabulary` command in this process; gives exit status, output and errors."""
    from click.testing import CliRunner

    from fiood_core import cli

    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run(*arguments):
        return CliRunner().invoke(cli.fiood, ["vocabulary", *arguments])

    return run


def asked(server):
    return [body["messages"][0]["content"] for _, _, body in server.requests]


SIBLINGS = ("generate", "llm-siblings(per_class=2)", "--model", "toy", "--replicates", "2")


def test_the_command_line_shows_an_estimate_and_asks_nothing_without_leave(server, fiood, names):
    done = fiood(*SIBLINGS, "--base-url", server.url, "--names", names)
    assert done.exit_code == 0, done.output
    assert "6 calls" in done.stderr
    assert "no call was made" in done.stderr
    assert not server.requests


def test_a_generation_stopped_halfway_asks_for_no_class_twice(server, fiood, names):
    arguments = (*SIBLINGS, "--base-url", server.url, "--names", names, "--allow-calls")
    good = completion("- Okapi\n- Fern")
    server.script = [good, good, good, good, (401, {}, {"error": {"message": "key expired"}})]
    stopped = fiood(*arguments)
    assert "key expired" in str(stopped.exception)
    server.script = [good]
    assert fiood(*arguments).exit_code == 0
    answered = asked(server)[:4] + asked(server)[5:]
    assert len(answered) == 6
    assert all(answered.count(prompt) == 2 for prompt in answered)  # once for each of two generations
    again = fiood(*arguments)
    assert again.exit_code == 0
    assert len(server.requests) == 7


def test_what_was_generated_is_shown_and_measured(server, fiood, names):
    server.script = [completion("- Okapi\n- Tench")]
    whence = ("--model", "toy", "--base-url", server.url, "--names", names, "--replicates", "1")
    generated = fiood("generate", "eoe(total=4, per_call=2)", *whence, "--allow-calls")
    assert generated.exit_code == 0, generated.output
    assert fiood("show", "eoe", "--names", names).output == "okapi\n"
    record = json.loads(fiood("stats", "eoe", "--names", names).output)
    assert (record["size"], record["envisioned"], record["overlap"], record["model"]) == (1, 4, 0, "toy")


def test_a_list_is_written_with_its_record(fiood, names, tmp_path):
    target = tmp_path / "list.txt"
    done = fiood("show", "imagenet-names", "--names", names, "--output", str(target))
    assert done.exit_code == 0, done.output
    assert len(target.read_text().splitlines()) == 1000
    assert json.loads((tmp_path / "list.txt.json").read_text())["overlap"] == 3


@pytest.mark.slow
def test_labels_are_mined_with_a_models_embeddings(fiood, tmp_path):
    pytest.importorskip("fiood_backbone_digits_clip")
    arguments = ("mine", "imagenet-names", "--backbone", "digits-clip", "--m", "5", "--names", "digits")
    first, again = fiood(*arguments), fiood(*arguments)
    assert first.exit_code == 0, first.output
    assert len(first.stdout.splitlines()) == 5
    assert again.stdout == first.stdout


def test_names_that_are_nothing_are_refused(fiood):
    assert "neither imagenet-names, nor a dataset, nor a text file" in str(
        fiood("stats", "wordnet", "--names", "x").exception
    )


def test_what_no_model_writes_cannot_be_generated(fiood):
    done = fiood("generate", "wordnet", "--model", "toy")
    assert "not written by a language model" in str(done.exception)


def test_an_offline_run_asks_nothing(server, client, monkeypatch):
    monkeypatch.setenv("FIOOD_OFFLINE", "1")
    with pytest.raises(InputError, match="offline"):
        client.ask([{"role": "user", "content": "a"}])
    assert not server.requests
