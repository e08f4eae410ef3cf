from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import random
import re
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request

import pytest

from ftcseg.data.archives import tree_digest
from ftcseg.data.fetch import FetchLimits, _WebRedirects, fetch, get
from ftcseg.data.sets import SETS, locate
from ftcseg.data.sets.sheet import Download, Sheet
from ftcseg.errors import FetchError, LayoutError, UsageError

BODY = random.Random(7).randbytes(300_000)
SHA256 = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
MD5 = f"md5:{hashlib.md5(BODY).hexdigest()}"
QUICK = FetchLimits(timeout=2.0, tries=3, wait=0.0)


@dataclasses.dataclass
class Asked:
    """One request as the server saw it."""

    start: int | None
    if_range: str | None


class Site(ThreadingHTTPServer):
    """A server with one file and switches for everything that goes wrong out there."""

    daemon_threads = False  # so that closing waits for the threads and their sockets

    def __init__(self, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.body = body
        self.etag: str | None = '"one"'
        self.ranges = True
        self.tells_length = True
        self.answers: list[int] = []  # statuses instead of the file, one per request
        self.drops: list[int] = []  # bytes after which the connection is dropped, one per request
        self.pause = 0.0
        self.shift = 0  # how far off the parts are that it sends
        self.location = ""
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/set.bin"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left is no news."""


class Page(BaseHTTPRequestHandler):
    server: Site

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass

    def do_GET(self) -> None:
        site = self.server
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if_range = self.headers.get("If-Range")
        site.asked.append(Asked(int(wanted[1]) if wanted else None, if_range))
        if site.answers:
            self._status(site.answers.pop(0))
            return
        start = int(wanted[1]) if wanted and site.ranges and if_range in (None, site.etag) else 0
        if start > len(site.body):
            self._status(416)
            return
        self._send_file(start)

    def _status(self, code: int) -> None:
        self.send_response(code)
        if site_location := self.server.location:
            self.send_header("Location", site_location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_file(self, start: int) -> None:
        site = self.server
        body = site.body[start:]
        self.send_response(206 if start else 200)
        if start:
            first = start + site.shift
            self.send_header("Content-Range", f"bytes {first}-{len(site.body) - 1}/{len(site.body)}")
        if site.etag:
            self.send_header("ETag", site.etag)
        if site.tells_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if site.drops:
            self.wfile.write(body[: site.drops.pop(0)])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        for place in range(0, len(body), 50_000):
            self.wfile.write(body[place : place + 50_000])
            time.sleep(site.pause)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Site(BODY) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "set.bin"


def left_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def begin(site: Site, target: Path, count: int = 100_000) -> None:
    """A download that stopped after some bytes."""
    site.drops = [count]
    with pytest.raises(FetchError, match="the same command goes on"):
        fetch(site.url, target, limits=dataclasses.replace(QUICK, tries=1))
    assert target.with_name("set.bin.part").read_bytes() == BODY[:count]
    site.asked.clear()


# Arriving whole --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [SHA256, MD5, "sha256:" + SHA256[7:].upper(), None])
def test_a_file_arrives_whole_and_alone(site: Site, target: Path, checksum: str | None) -> None:
    told: list[tuple[int, int | None]] = []
    fetch(site.url, target, checksum=checksum, size=len(BODY), progress=lambda *step: told.append(step))
    assert target.read_bytes() == BODY
    assert left_in(target.parent) == ["set.bin"]
    assert told[0] == (0, 300_000)
    assert told[-1] == (300_000, 300_000)


def test_what_is_there_is_not_asked_for_again(site: Site, target: Path) -> None:
    fetch(site.url, target, checksum=SHA256)
    fetch(site.url, target, checksum=SHA256)
    assert len(site.asked) == 1


def test_what_is_there_but_wrong_is_replaced(site: Site, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"something else")
    fetch(site.url, target, checksum=SHA256)
    assert target.read_bytes() == BODY


def test_a_slow_server_is_waited_for(site: Site, target: Path) -> None:
    site.pause = 0.2  # six pieces: longer in all than the silence that is borne
    fetch(site.url, target, checksum=SHA256, limits=dataclasses.replace(QUICK, timeout=1.0, tries=1))
    assert target.read_bytes() == BODY


def test_a_server_that_does_not_tell_the_length_is_fine(site: Site, target: Path) -> None:
    site.tells_length = False
    told: list[int | None] = []
    fetch(site.url, target, checksum=SHA256, progress=lambda _, total: told.append(total))
    assert target.read_bytes() == BODY
    assert set(told) == {None}


def test_an_empty_file_is_a_file(site: Site, target: Path) -> None:
    site.body = b""
    assert fetch(site.url, target).read_bytes() == b""


# Going on --------------------------------------------------------------------------------------------------------


def test_a_dropped_connection_is_continued_at_the_very_byte(site: Site, target: Path) -> None:
    site.drops = [100_000, 50_000]
    fetch(site.url, target, checksum=SHA256, limits=QUICK)
    assert target.read_bytes() == BODY
    assert site.asked == [Asked(None, None), Asked(100_000, '"one"'), Asked(150_000, '"one"')]


def test_a_second_run_asks_only_for_the_rest(site: Site, target: Path) -> None:
    begin(site, target)
    told: list[int] = []
    fetch(site.url, target, checksum=SHA256, progress=lambda done, _: told.append(done))
    assert target.read_bytes() == BODY
    assert site.asked == [Asked(100_000, '"one"')]
    assert told[0] == 100_000


def test_a_file_that_changed_meanwhile_is_begun_anew(site: Site, target: Path) -> None:
    begin(site, target)
    site.etag, site.body = '"two"', BODY[::-1]
    fetch(site.url, target)
    assert site.asked == [Asked(100_000, '"one"')]
    assert target.read_bytes() == BODY[::-1]


def test_a_server_that_ignores_ranges_starts_over_cleanly(site: Site, target: Path) -> None:
    begin(site, target)
    site.ranges = False
    fetch(site.url, target, checksum=SHA256)
    assert site.asked[0].start == 100_000
    assert target.read_bytes() == BODY


def test_a_server_that_sends_the_wrong_part_has_to_send_all(site: Site, target: Path) -> None:
    begin(site, target)
    site.shift = 5
    fetch(site.url, target, checksum=SHA256, limits=QUICK)
    assert [asked.start for asked in site.asked] == [100_000, None]
    assert target.read_bytes() == BODY


def test_without_a_version_mark_only_a_checksum_allows_going_on(site: Site, target: Path) -> None:
    site.etag = None
    begin(site, target)
    fetch(site.url, target, checksum=SHA256)
    assert site.asked == [Asked(100_000, None)]
    target.unlink()

    begin(site, target)
    fetch(site.url, target)
    assert site.asked == [Asked(None, None)]
    assert target.read_bytes() == BODY


def test_a_weak_tag_is_no_version_mark(site: Site, target: Path) -> None:
    site.etag = 'W/"one"'
    begin(site, target)
    fetch(site.url, target)
    assert site.asked == [Asked(None, None)]


def test_a_part_of_another_address_is_not_continued(site: Site, target: Path) -> None:
    begin(site, target)
    fetch(f"{site.url}?other", target, checksum=SHA256)
    assert site.asked == [Asked(None, None)]


@pytest.mark.parametrize("notes", ["", "[]", '{"url": 1}', '{"url": "x", "validator": 3, "total": "many", "more": 0}'])
def test_spoilt_notes_mean_a_fresh_start(site: Site, target: Path, notes: str) -> None:
    begin(site, target)
    target.with_name("set.bin.part.json").write_text(notes)
    fetch(site.url, target, checksum=SHA256)
    assert site.asked == [Asked(None, None)]


def test_a_part_longer_than_the_file_is_dropped(site: Site, target: Path) -> None:
    begin(site, target)
    with target.with_name("set.bin.part").open("ab") as part:
        part.write(bytes(len(BODY)))
    fetch(site.url, target, checksum=SHA256, limits=QUICK)
    assert [asked.start for asked in site.asked] == [400_000, None]
    assert target.read_bytes() == BODY


def test_a_part_that_is_all_there_needs_no_server(site: Site, target: Path) -> None:
    begin(site, target)
    target.with_name("set.bin.part").write_bytes(BODY)
    fetch(site.url, target, checksum=SHA256)
    assert site.asked == []
    assert left_in(target.parent) == ["set.bin"]


def test_an_interruption_leaves_what_came(site: Site, target: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if done > 60_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(site.url, target, progress=stop)
    came = target.with_name("set.bin.part").stat().st_size
    assert 60_000 < came <= 300_000
    assert json.loads(target.with_name("set.bin.part.json").read_text())["validator"] == '"one"'
    assert not target.exists()
    site.asked.clear()
    fetch(site.url, target, checksum=SHA256)
    assert site.asked in ([Asked(came, '"one"')], [])  # nothing to ask where all had come


# Not arriving ----------------------------------------------------------------------------------------------------


def test_a_wrong_checksum_names_both_and_removes_the_file(site: Site, target: Path) -> None:
    wrong = f"sha256:{'0' * 64}"
    with pytest.raises(FetchError, match="removed") as error:
        fetch(site.url, target, checksum=wrong)
    assert "0" * 64 in str(error.value)
    assert SHA256.removeprefix("sha256:") in str(error.value)
    assert left_in(target.parent) == []


def test_another_size_is_refused_before_a_byte_is_taken(site: Site, target: Path) -> None:
    with pytest.raises(FetchError, match="expected 5 bytes, offered 300,000"):
        fetch(site.url, target, size=5)
    assert left_in(target.parent) == []


def test_an_absent_file_is_not_asked_for_twice(site: Site, target: Path) -> None:
    site.answers = [404] * 5
    with pytest.raises(FetchError, match="404 Not Found"):
        fetch(site.url, target, limits=QUICK)
    assert len(site.asked) == 1


def test_a_busy_server_gets_another_chance(site: Site, target: Path) -> None:
    site.answers = [503, 429]
    fetch(site.url, target, checksum=SHA256, limits=QUICK)
    assert len(site.asked) == 3


def test_patience_ends(site: Site, target: Path) -> None:
    site.answers = [503] * 9
    with pytest.raises(FetchError, match="3 times in a row"):
        fetch(site.url, target, limits=QUICK)
    assert len(site.asked) == 3


def test_patience_is_renewed_by_every_new_byte(site: Site, target: Path) -> None:
    site.drops = [20_000] * 14  # fifteen connections, with a patience of two
    fetch(site.url, target, checksum=SHA256, limits=dataclasses.replace(QUICK, tries=2))
    assert target.read_bytes() == BODY
    assert len(site.asked) == 15


def test_a_server_that_always_drops_at_the_same_byte_ends_it(site: Site, target: Path) -> None:
    site.ranges, site.drops = False, [20_000] * 20
    with pytest.raises(FetchError, match="ended after 20,000 of 300,000 bytes"):
        fetch(site.url, target, limits=QUICK)
    assert len(site.asked) == 3


def test_waits_double(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    site.answers, site.pause = [503] * 9, 0
    with pytest.raises(FetchError):
        fetch(site.url, target, limits=FetchLimits(tries=5, wait=1.0))
    assert [wait for wait in waits if wait] == [1, 2, 4, 8]


def test_nobody_there_is_told_plainly(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(FetchError, match="no connection"):
        fetch(f"http://127.0.0.1:{port}/", target, limits=QUICK)


def test_silence_counts_as_a_dropped_connection(site: Site, target: Path) -> None:
    site.pause = 0.5
    with pytest.raises(FetchError, match="timed out"):
        fetch(site.url, target, limits=dataclasses.replace(QUICK, timeout=0.1, tries=1))


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_file_that_is_too_large_is_not_kept(site: Site, target: Path, tells_length: bool) -> None:
    site.tells_length = tells_length
    with pytest.raises(FetchError, match="100,000"):
        fetch(site.url, target, limits=dataclasses.replace(QUICK, max_bytes=100_000))
    assert left_in(target.parent) == []


def test_a_place_that_cannot_be_written_is_told(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FetchError, match="cannot be written"):
        fetch(site.url, tmp_path / "file" / "set.bin")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/a", "data:,a", "/etc/passwd"])
def test_only_the_web_is_downloaded(url: str, target: Path) -> None:
    with pytest.raises(FetchError, match="Only http and https"):
        fetch(url, target)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/a", "data:,a"])
def test_redirects_do_not_leave_the_web(site: Site, target: Path, location: str) -> None:
    site.answers, site.location = [302], location
    with pytest.raises(FetchError, match=re.escape(location)):
        fetch(site.url, target, limits=QUICK)
    assert left_in(target.parent) == []


def test_redirects_within_the_web_are_followed(site: Site, target: Path) -> None:
    site.answers, site.location = [302], f"{site.url}?elsewhere"
    fetch(site.url, target, checksum=SHA256, limits=QUICK)
    assert len(site.asked) == 2


def test_https_is_not_given_up_for_http() -> None:
    request = Request("https://example.org/a")
    with pytest.raises(FetchError, match="not followed"):
        _WebRedirects().redirect_request(request, io.BytesIO(), 302, "Found", HTTPMessage(), "http://example.org/a")


# Whole sets ------------------------------------------------------------------------------------------------------


PREFIX = "repository-master/data/tank"
PICTURES = {"Images/marine-debris-aris3k-0.png": b"image", "Masks/marine-debris-aris3k-0.png": b"mask"}


def repository(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as pack:
        pack.writestr("repository-master/README.md", "read me")
        for name, data in files.items():
            pack.writestr(f"{PREFIX}/{name}", data)
    return buffer.getvalue()


@pytest.fixture
def sheet(site: Site, tmp_path: Path) -> Sheet:
    """FLSMD's sheet, with a set of one frame on our own server."""
    site.body = repository({**PICTURES, "BoxAnnotations/0.xml": b"not looked at"})
    known = tmp_path / "known"
    for name, data in PICTURES.items():
        (known / name).parent.mkdir(parents=True)
        (known / name).write_bytes(data)
    tree = tree_digest(known, ("Images", "Masks"))
    download = Download(site.url, subfolder=PREFIX, tree=tree, tree_of=("Images", "Masks"))
    return dataclasses.replace(SETS["flsmd"], download=download)


def test_getting_a_set_puts_it_where_it_is_found(sheet: Sheet, tmp_path: Path) -> None:
    stages: list[str] = []
    folder = get(sheet, tmp_path / "data", progress=lambda stage, *_: stages.append(stage))
    assert folder == tmp_path / "data/flsmd" == locate("flsmd", tmp_path / "data")
    assert left_in(tmp_path / "data") == ["flsmd"]
    assert left_in(folder) == ["BoxAnnotations", "Images", "Masks"]
    assert list(dict.fromkeys(stages)) == ["download", "unpack"]


def test_files_that_are_not_the_known_ones_are_not_kept(sheet: Sheet, site: Site, tmp_path: Path) -> None:
    site.body = repository({**PICTURES, "Masks/marine-debris-aris3k-0.png": b"forged"})
    with pytest.raises(FetchError, match="Nothing was kept"):
        get(sheet, tmp_path / "data")
    assert left_in(tmp_path / "data") == [".downloads"]
    assert left_in(tmp_path / "data/.downloads") == []
    site.body = repository(PICTURES)  # a later try is not fooled by the first archive
    assert get(sheet, tmp_path / "data").is_dir()


def test_a_page_instead_of_an_archive_is_not_kept(sheet: Sheet, site: Site, tmp_path: Path) -> None:
    site.body = b"<html>Sign in</html>" * 100
    with pytest.raises(LayoutError, match="no zip or tar"):
        get(sheet, tmp_path / "data")
    assert left_in(tmp_path / "data/.downloads") == []


def test_an_interrupted_set_goes_on(sheet: Sheet, site: Site, tmp_path: Path) -> None:
    site.drops = [100]
    with pytest.raises(FetchError):
        get(sheet, tmp_path / "data", limits=dataclasses.replace(QUICK, tries=1))
    assert get(sheet, tmp_path / "data").is_dir()
    assert [asked.start for asked in site.asked] == [None, 100]


def test_a_set_that_is_there_is_not_downloaded(sheet: Sheet, site: Site, tmp_path: Path) -> None:
    (tmp_path / "FLSMD/Images").mkdir(parents=True)
    with pytest.raises(UsageError, match="is already in"):
        get(sheet, tmp_path)
    assert site.asked == []


def test_a_strange_folder_in_its_place_is_not_touched(sheet: Sheet, site: Site, tmp_path: Path) -> None:
    (tmp_path / "flsmd/mine").mkdir(parents=True)
    with pytest.raises(UsageError, match="does not hold flsmd"):
        get(sheet, tmp_path)
    assert site.asked == []
    assert (tmp_path / "flsmd/mine").is_dir()


@pytest.mark.parametrize("name", ["suim", "fssg", "acdc-driving", "cityscapes"])
def test_a_set_that_is_not_public_says_how_to_get_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not offered as a public download") as error:
        get(SETS[name], tmp_path)
    assert SETS[name].obtain in str(error.value)
