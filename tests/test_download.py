"""Downloads from servers that fail, lie or change their mind: nothing is half-accepted, and messages say what to do."""

from __future__ import annotations

import hashlib
import socket
import warnings

import pytest

from fiood_core.download import Remote, fetch
from fiood_core.errors import DataError
from fiood_core.testing.loopback import Served, mirror

CONTENT = b"PK\x03\x04" + bytes(range(256)) * 8000
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
HTML = b"\n<!DOCTYPE html><html>Please sign in</html>"


def remote(*urls: str, **more: object) -> Remote:
    return Remote("a.zip", urls, **{"kind": "zip", "digest": SHA256, **more})  # type: ignore[arg-type]


def left(folder) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def dead_url() -> str:
    """An address of this machine at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/a.zip"


def test_a_good_file_is_fetched_once_and_leaves_nothing_beside_it(tmp_path):
    with mirror({"a.zip": CONTENT}) as server:
        told = []
        for _ in range(2):
            path = fetch(remote(server("a.zip")), tmp_path, progress=lambda *args: told.append(args))
            assert path.read_bytes() == CONTENT
        assert server.asked == [("a.zip", None)]
    assert left(tmp_path) == ["a.zip"]
    assert told[-1] == ("a.zip", len(CONTENT), len(CONTENT))


def test_a_broken_connection_is_gone_on_from_where_it_broke(tmp_path):
    with mirror({"a.zip": Served(CONTENT, stop_after=1_500_000)}) as server:
        with pytest.raises(DataError, match=r"ended after 1500000 of 2048004 bytes; they are kept, run again to go on"):
            fetch(remote(server("a.zip")), tmp_path)
        assert "a.zip" not in left(tmp_path)
        assert fetch(remote(server("a.zip")), tmp_path).read_bytes() == CONTENT
        assert server.asked == [("a.zip", None), ("a.zip", "bytes=1500000-")]
    assert left(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("how", [{"ranges": False}, {"tagged": False}, {"tagged": False, "ranges": False}])
def test_servers_that_cannot_resume_send_it_again(tmp_path, how):
    with mirror({"a.zip": Served(CONTENT, stop_after=1000, **how)}) as server:
        with pytest.raises(DataError, match="ended after"):
            fetch(remote(server("a.zip"), digest=None), tmp_path)
        assert fetch(remote(server("a.zip"), digest=None), tmp_path).read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_not_spliced(tmp_path):
    old = CONTENT[:4] + bytes(len(CONTENT))
    with mirror({"a.zip": Served(old, stop_after=1_000_000)}) as server:
        with pytest.raises(DataError, match="ended after"):
            fetch(remote(server("a.zip"), digest=None), tmp_path)
        server.files["a.zip"] = Served(CONTENT)
        assert fetch(remote(server("a.zip"), digest=None), tmp_path).read_bytes() == CONTENT


def test_a_wrong_partial_download_is_thrown_away_and_fetched_from_the_start(tmp_path):
    with mirror({"a.zip": Served(CONTENT, stop_after=5000, tagged=False)}) as server:
        with pytest.raises(DataError, match="ended after"):
            fetch(remote(server("a.zip")), tmp_path)
        (part,) = tmp_path.glob("*.part")
        part.write_bytes(bytes(5000))
        assert fetch(remote(server("a.zip")), tmp_path).read_bytes() == CONTENT
        assert [asked for _, asked in server.asked] == [None, "bytes=5000-", None]
    assert left(tmp_path) == ["a.zip"]


def test_a_partial_download_longer_than_the_file_is_thrown_away(tmp_path):
    with mirror({"a.zip": Served(CONTENT, stop_after=5000, tagged=False)}) as server:
        with pytest.raises(DataError, match="ended after"):
            fetch(remote(server("a.zip")), tmp_path)
        (part,) = tmp_path.glob("*.part")
        part.write_bytes(CONTENT + b"more")
        assert fetch(remote(server("a.zip")), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("served", "more", "message"),
    [
        (Served(HTML), {}, "the file is an HTML page, not zip; what came was removed"),
        (Served(b"GIF89a" + CONTENT), {}, "the file is something else, not zip"),
        (Served(b""), {}, "the file is empty"),
        (Served(CONTENT[:-1]), {}, f"the digest is sha256:[0-9a-f]+, expected {SHA256}"),
        (Served(CONTENT + b"x"), {"size": len(CONTENT)}, "announces 2048005 bytes, more than the 2048004 expected"),
        (Served(CONTENT + b"x", sized=False), {"size": len(CONTENT)}, "more than the expected 2048004 bytes came"),
        (Served(CONTENT, sized=False), {"max_bytes": 1000}, "more than the expected 1000 bytes came"),
        (Served(CONTENT[:99], sized=False), {"digest": None, "size": len(CONTENT)}, "ended after 99 of 2048004 bytes"),
        (Served(status=403), {}, "the server says 403 Forbidden; it may ask for an account"),
        (Served(status=404), {}, "the server says 404"),
        (Served(status=503), {}, "the server says 503"),
    ],
)
def test_what_is_not_the_file_is_refused(tmp_path, served, more, message):
    with mirror({"a.zip": served}) as server, pytest.raises(DataError, match=message) as raised:
        fetch(remote(server("a.zip"), **more), tmp_path)
    assert f"Get it by hand. Put it at {tmp_path / 'a.zip'} and run again" in str(raised.value)
    assert "a.zip" not in left(tmp_path)


def test_an_html_page_named_like_a_list_is_refused(tmp_path):
    with mirror({"list.txt": HTML}) as server, pytest.raises(DataError, match="the file is an HTML page"):
        fetch(Remote("list.txt", (server("list.txt"),)), tmp_path)
    assert left(tmp_path) == []


def test_the_next_mirror_is_tried_and_every_reason_is_told(tmp_path):
    with mirror({"a.zip": CONTENT, "gone.zip": Served(status=403), "html.zip": HTML}) as server:
        bad = (dead_url(), server("gone.zip"), server("html.zip"), "file:///etc/passwd", "http://no-such-host.invalid/")
        assert fetch(remote(*bad, server("a.zip")), tmp_path).read_bytes() == CONTENT
        with pytest.raises(DataError, match="refused") as raised:
            fetch(remote(*bad), tmp_path / "other")
    for url, reason in zip(bad, ("refused", "403", "HTML page", "only http and https", ""), strict=True):
        assert f"{url}: " in str(raised.value)
        assert reason in str(raised.value)
    assert left(tmp_path / "other") == []


def test_offline_makes_no_call_and_takes_what_is_there(tmp_path):
    with mirror({"a.zip": CONTENT}) as server:
        with pytest.raises(DataError, match=rf"is not at .*offline; get it from {server.url}/a.zip and put"):
            fetch(remote(server("a.zip")), tmp_path, offline=True)
        assert server.asked == []
        (tmp_path / "a.zip").write_bytes(CONTENT)
        assert fetch(remote(server("a.zip")), tmp_path, offline=True).read_bytes() == CONTENT


def test_a_wrong_file_that_is_there_is_named_and_kept(tmp_path):
    (tmp_path / "a.zip").write_bytes(HTML)
    with pytest.raises(DataError, match=rf"{tmp_path / 'a.zip'}: the file is an HTML page, not zip; remove it and run"):
        fetch(remote("http://127.0.0.1:1/"), tmp_path)
    assert (tmp_path / "a.zip").read_bytes() == HTML


def test_a_file_bound_to_an_account_is_never_asked_for(tmp_path):
    bound = Remote("a.tar", instructions="Get it from the owner.")
    with pytest.raises(DataError, match=rf"by hand: Get it from the owner. Then put it at {tmp_path / 'a.tar'}"):
        fetch(bound, tmp_path)


def test_a_digest_known_from_third_parties_warns(tmp_path):
    with mirror({"a.zip": CONTENT}) as server:
        with pytest.warns(UserWarning, match="third parties state md5:0123; the file list will decide"):
            fetch(remote(server("a.zip"), digest="md5:0123", digest_by_others=True), tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            md5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
            fetch(remote(server("a.zip"), digest=md5, digest_by_others=True), tmp_path / "other")
