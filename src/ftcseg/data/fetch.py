"""Downloading: resumed where it stopped, proved before it takes its name.

The bytes go to `NAME.part`; `NAME.part.json` beside it remembers which version of the file they belong to, so that a
second run asks for the rest of that version only. Whatever interrupts a download, Ctrl-C included, leaves both behind.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from ftcseg.data.archives import CHUNK, Progress, silent, tree_digest, unpack
from ftcseg.data.sets import find
from ftcseg.data.sets.sheet import Download, Sheet
from ftcseg.errors import DataError, FetchError, LayoutError, UsageError
from ftcseg.files import inside, read_json, write_json

StageProgress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the stage («download» or «unpack»), the bytes done and, where known, the bytes in all."""

WEB = frozenset({"http", "https"})
OK, PARTIAL, RANGE_NOT_SATISFIABLE = 200, 206, 416
WORTH_ANOTHER_TRY = frozenset({408, 425, 429, 500, 502, 503, 504})
LONGEST_WAIT = 30.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How patient a download is, and how large it may grow."""

    max_bytes: int = 64 * 2**30
    timeout: float = 30.0
    """Seconds of silence after which a connection counts as dropped."""
    tries: int = 5
    """Failures in a row; one that brought the file further than ever begins the count anew."""
    wait: float = 1.0
    """Seconds before the second try; doubled before each further one."""


LIMITS = FetchLimits()


def fetch(
    url: str,
    target: Path,
    *,
    checksum: str | None = None,
    size: int | None = None,
    progress: Progress = silent,
    limits: FetchLimits = LIMITS,
) -> Path:
    """Download over http(s) to `target`, unless it is there already with the right checksum and size.

    `fetch("https://…/a.tar", Path("a.tar"), checksum="sha256:9f86…")`; md5 is understood as well.
    """
    job = _Job(url, target, checksum, size, progress, limits)
    _require_web(url)
    if target.is_file() and job.fault_of(target) is None:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _bring_all(job)
        fault = job.fault_of(job.part)
        if fault is not None:
            job.forget()
            raise FetchError(f"{url} did not arrive as it should: {fault}. The file was removed; try again later.")
        job.part.replace(target)
        job.notes.unlink(missing_ok=True)
    except OSError as error:
        raise FetchError(f"{target} cannot be written: {error.strerror or error}.") from error
    return target


def quiet(stage: str, done: int, total: int | None) -> None:
    """A StageProgress that tells nobody."""


def get(sheet: Sheet, root: Path, *, progress: StageProgress = quiet, limits: FetchLimits = LIMITS) -> Path:
    """Download a public set, prove it and unpack it below `root`; the folder it is then found in."""
    if sheet.download is None:
        raise UsageError(f"{sheet.name} is not offered as a public download. {sheet.obtain}")
    there = find(sheet, root)
    if there is not None:
        raise UsageError(f"{sheet.name} is already in {there}; nothing was downloaded.")
    target = root / sheet.folders[0]
    if target.exists():
        raise UsageError(f"{target} exists but does not hold {sheet.name}; move it away first.")
    return _install(sheet.download, target, progress, limits)


def _install(download: Download, target: Path, progress: StageProgress, limits: FetchLimits) -> Path:
    waiting = target.parent / ".downloads"
    archive = inside(waiting, f"{target.name}-{PurePosixPath(unquote(urlsplit(download.url).path)).name}")
    fetch(
        download.url,
        archive,
        checksum=download.checksum,
        size=download.size,
        progress=lambda done, total: progress("download", done, total),
        limits=limits,
    )
    try:
        unpack(
            archive,
            target,
            subfolder=download.subfolder,
            progress=lambda done, total: progress("unpack", done, total),
            check=lambda folder: _require_tree(folder, download),
        )
    except (DataError, FetchError):
        archive.unlink()  # it is whole but wrong: kept, it would be taken for good next time
        raise
    except OSError as error:  # a full disk: the archive stays for the next try
        raise FetchError(f"{archive} cannot be unpacked to {target}: {error.strerror or error}.") from error
    archive.unlink()
    with suppress(OSError):  # other downloads may wait there
        waiting.rmdir()
    return target


def _require_tree(folder: Path, download: Download) -> None:
    if download.tree is None:
        return
    got = tree_digest(folder, download.tree_of)
    if got != download.tree:
        raise FetchError(
            f"The files from {download.url} are not those this version of ftcseg knows "
            f"(expected tree {download.tree}, got {got}). "
            "Nothing was kept; get the set by hand if you trust the new ones."
        )


@dataclass(frozen=True, slots=True)
class _Notes:
    """Which version of which file a .part belongs to."""

    url: str
    validator: str | None
    total: int | None


@dataclass(frozen=True, slots=True)
class _Job:
    url: str
    target: Path
    checksum: str | None
    size: int | None
    progress: Progress
    limits: FetchLimits

    def __post_init__(self) -> None:
        assert self.checksum is None or re.match(r"(sha256|md5):", self.checksum), self.checksum

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    @property
    def notes(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part.json")

    def arrived(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def forget(self) -> None:
        self.part.unlink(missing_ok=True)
        self.notes.unlink(missing_ok=True)

    def remembered(self) -> _Notes | None:
        """What is known of the .part; None where it is of no use, because nothing says what it is a part of."""
        try:
            notes = _Notes(**read_json(self.notes))
        except (LayoutError, TypeError):
            return None
        known = isinstance(notes.validator, str) or self.checksum is not None
        return notes if known and notes.url == self.url and isinstance(notes.total, int | None) else None

    def fault_of(self, path: Path) -> str | None:
        """What is wrong with a finished file, None for nothing."""
        if self.size is not None and path.stat().st_size != self.size:
            return f"expected {self.size:,} bytes, got {path.stat().st_size:,}"
        if self.checksum is None:
            return None
        algorithm, _, expected = self.checksum.partition(":")
        with path.open("rb") as file:
            # md5 only where a set's owners publish nothing better: it shows a broken download, not a forged one.
            got = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
        return None if got == expected.lower() else f"expected {algorithm} {expected}, got {got}"


class _Dropped(Exception):
    """The connection did not last; worth another try."""


def _bring_all(job: _Job) -> None:
    """Try until everything is in the .part, or nothing new has come for `tries` times."""
    furthest, failures = job.arrived(), 0
    while True:
        try:
            return _bring_rest(job)
        except _Dropped as dropped:
            arrived = job.arrived()
            failures = 1 if arrived > furthest else failures + 1
            furthest = max(furthest, arrived)
            if failures >= job.limits.tries:
                raise FetchError(
                    f"{job.url} cannot be downloaded: {dropped} ({failures} times in a row). "
                    f"{arrived:,} bytes are kept; the same command goes on from there."
                ) from dropped
            time.sleep(min(job.limits.wait * 2 ** (failures - 1), LONGEST_WAIT))


def _bring_rest(job: _Job) -> None:
    """One connection: ask for what is missing and append it, or begin anew where the server will not continue."""
    notes = job.remembered()
    start = job.arrived() if notes else 0
    if notes and start and start == notes.total:
        return  # stopped between the last byte and the check
    with _opened(job, start, notes) as response:
        start, total = _span(response, start, job)
        with job.part.open("ab" if start else "wb") as file:
            if start == 0:  # only now, that no byte of another version is left
                write_json(job.notes, asdict(_Notes(job.url, _validator(response.headers), total)))
            done = _copy(response, file, job, start, total)
            file.flush()
            os.fsync(file.fileno())
    if done > job.limits.max_bytes:
        job.forget()
        raise FetchError(f"{job.url} is more than the {job.limits.max_bytes:,} bytes that are taken; it was removed.")
    if total is not None and done < total:
        raise _Dropped(f"the connection ended after {done:,} of {total:,} bytes")


def _copy(response: HTTPResponse, file: IO[bytes], job: _Job, done: int, total: int | None) -> int:
    job.progress(done, total)
    while done <= job.limits.max_bytes and (data := _read(response)):
        done += len(data)
        file.write(data)
        job.progress(done, total)
    return done


def _read(response: HTTPResponse) -> bytes:
    try:
        # read1: what has come is written at once, so that little is lost when the connection drops.
        return response.read1(CHUNK)
    except (OSError, HTTPException) as error:
        raise _Dropped(f"the connection broke ({_said(error)})") from error


def _opened(job: _Job, start: int, notes: _Notes | None) -> HTTPResponse:
    headers = {"User-Agent": "ftcseg", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if notes and notes.validator:
            headers["If-Range"] = notes.validator
    request = Request(job.url, headers=headers)  # noqa: S310 - _require_web has seen the scheme
    try:
        response = _opener().open(request, timeout=job.limits.timeout)
    except HTTPError as error:
        with error:
            if error.code == RANGE_NOT_SATISFIABLE:
                job.forget()  # longer than the file now is
            elif error.code not in WORTH_ANOTHER_TRY:
                raise FetchError(
                    f"{job.url} cannot be downloaded: the server answered {error.code} {error.reason}."
                ) from error
            raise _Dropped(f"the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise FetchError(f"{job.url} cannot be trusted: {reason.verify_message}.") from error
        raise _Dropped(f"no connection ({_said(error)})") from error
    assert isinstance(response, HTTPResponse)
    return response


def _said(error: Exception) -> str:
    return str(error.reason if isinstance(error, URLError) else error) or type(error).__name__


def _span(response: HTTPResponse, asked: int, job: _Job) -> tuple[int, int | None]:
    """Where the body begins in the file, and how long the file is if anybody says."""
    if response.status == PARTIAL:
        span = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", response.headers.get("Content-Range", ""))
        if not span or int(span[1]) != asked:
            job.forget()  # a server that cannot count gets to send it whole
            raise _Dropped("the server sent another part of the file than was asked for")
        start, length = asked, span[2]
    elif response.status == OK:
        start, length = 0, response.headers.get("Content-Length", "")
    else:
        raise FetchError(f"{job.url} cannot be downloaded: the server answered {response.status} {response.reason}.")
    total = int(length) if re.fullmatch(r"\d{1,18}", length) else job.size
    if job.size is not None and total != job.size:
        raise FetchError(f"{job.url} is not the file that was meant: expected {job.size:,} bytes, offered {total:,}.")
    if total is not None and total > job.limits.max_bytes:
        raise FetchError(f"{job.url} is {total:,} bytes; at most {job.limits.max_bytes:,} are taken.")
    return start, total


def _validator(headers: HTTPMessage) -> str | None:
    """What the server recognises this version of the file by; a weak tag promises too little to join bytes on."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _require_web(url: str) -> None:
    if urlsplit(url).scheme not in WEB:
        raise FetchError(f"Only http and https addresses are downloaded, not {url}.")


class _WebRedirects(HTTPRedirectHandler):
    """Follows redirects within the web only, and never from https down to http."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme not in WEB or (req.type == "https" and scheme == "http"):
            fp.close()
            raise FetchError(
                f"{req.full_url} leads to {newurl}, which is not followed: not the web, or less protected."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> OpenerDirector:
    """An opener that knows the web alone; urllib's usual one also opens file:, ftp: and data: addresses."""
    opener = OpenerDirector()
    for handler in (
        ProxyHandler,
        UnknownHandler,
        HTTPHandler,
        HTTPSHandler,
        HTTPDefaultErrorHandler,
        _WebRedirects,
        HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener
