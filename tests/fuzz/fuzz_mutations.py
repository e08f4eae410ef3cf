"""Damage to files: bytes, and structures that keep their frame so that what is inside is reached."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import yaml

WORDS = (
    *("0", "-1", "1e400", "-1e308", "1e308", "NaN", "Infinity", "nan", "inf", "--5", "+-1", "0x10", "1_000", "٣", "²"),
    *("2147483648", "-9223372036854775809", "18446744073709551616", "9" * 400, "9" * 5000, "0.1", "1e-320", "", "null"),
    *("true", "../..", "/etc/passwd", "..\\..", "C:\\x", "con", "a\0b", "\ud800", "\u2028", "\u202e", "%00", "a" * 300),
    *("a/" * 2500, "~", "&a *a", "<<: *a", "!!python/object:os.system", "2001-99-99", "0o8", "=", "- - -", "*a", "&a"),
    *(
        "{",
        "}",
        "[",
        "]",
        '"',
        "'",
        ":",
        ",",
        ";",
        "<",
        ">",
        "&amp;",
        "&x;",
        "<!DOCTYPE x [<!ENTITY a 'b'>]>",
        "\r",
        "\t",
    ),
    *("background", "ignore", "rope", "train", "val", "\ufeff", "é", "e\u0301", "İ", "ß", "#", "|", "é" * 200),
)
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30),
    *(-(2**63), -(2**64), 10**400, 0.5, -0.0, 1e-320, 1e150, 1e154, 1e300, 1.7e308, -1.7e308),
    *(float("inf"), float("-inf"), float("nan")),
)
VALUES: tuple[Any, ...] = (*NUMBERS, *WORDS, None, True, False, [], {}, [[]], {"a": []}, [None], [1], [1, 2], [[1, 2]])
FIELDS = (
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    127,
    128,
    255,
    256,
    4096,
    32767,
    65535,
    65536,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
)
DEPTHS = (5, 70, 300, 900, 980, 20_000)
_MOST_PLAIN = 2**17
_PNG = b"\x89PNG\r\n\x1a\n"

Change = Callable[[bytes, random.Random, list[bytes]], bytes]


def mutated(name: str, data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """The file, damaged in one to four places, as its kind allows or as plain bytes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        shaped = _shaped(name, data)
        change = shaped if shaped is not None and rng.random() < 0.7 else as_bytes
        data = change(data, rng, others)
    return data


def _shaped(name: str, data: bytes) -> Change | None:
    """The kind of damage that knows the file's structure."""
    if data.startswith(_PNG):
        return as_png
    for suffix, change in _BY_SUFFIX.items():
        if name.endswith(suffix):
            return change
    return None


# ---------------------------------------------------------------- bytes


def as_bytes(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One small accident that any file may have."""
    return rng.choice(_ACCIDENTS)(data, rng, others)


def _place(data: bytes, rng: random.Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    return data[: _place(data, rng)]


def _drop(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.choice((1, 2, 4, 16, 200)) :]


def _repeat(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    at, size = _place(data, rng), rng.choice((1, 4, 16, 200))
    return data[:at] + data[at : at + size] * rng.choice((2, 3, 50)) + data[at + size :]


def _insert(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 8, 64))) + data[at:]


def _splice(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    other = rng.choice(others)
    at, there = _place(data, rng), _place(other, rng)
    return data[:at] + other[there : there + rng.choice((4, 40, 400, 10**6))] + data[at + rng.choice((0, 40)) :]


def _field(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    """A length, a size or an offset that says something else."""
    size = rng.choice((1, 2, 4, 8))
    at = _place(data, rng)
    value = rng.choice(FIELDS) % 256**size
    return data[:at] + value.to_bytes(size, rng.choice(("little", "big"))) + data[at + size :]


def _word(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    at = _place(data, rng)
    word = rng.choice(WORDS).encode(errors="surrogatepass")
    return data[:at] + word + data[at + rng.choice((0, 0, len(word))) :]


def _number(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    """A number in the text becomes another."""
    numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?", data[:100_000]))
    if not numbers:
        return _flip(data, rng, _others)
    match = rng.choice(numbers)
    return data[: match.start()] + rng.choice(WORDS[:26]).encode(errors="surrogatepass") + data[match.end() :]


def _lines(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    what = rng.randrange(4)
    if what == 0:
        lines.insert(at, rng.choice(lines))
    elif what == 1:
        del lines[at]
    elif what == 2:
        lines[at] = rng.choice(WORDS).encode(errors="surrogatepass")
    else:
        rng.shuffle(lines)
    return b"\n".join(lines)


def _nested(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    at, depth = _place(data, rng), rng.choice(DEPTHS)
    left, right = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"<a>", b"</a>"), (b"- ", b"")))
    return data[:at] + left * depth + b"1" + right * depth + data[at:]


_ACCIDENTS: tuple[Change, ...] = (
    *(_flip, _flip, _cut, _drop, _repeat, _insert, _splice, _field, _field, _word, _number, _lines, _nested),
)


# ---------------------------------------------------------------- JSON and YAML


def as_json(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A JSON file in which a value, a key or a branch is another."""
    try:
        value = json.loads(data)
        return json.dumps(_changed(value, rng), ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        return as_bytes(data, rng, others)


def as_json_lines(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """The same for one line of several."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = as_json(lines[at], rng, others)
    return b"\n".join(lines)


def as_yaml(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """The same for YAML, which may also refer to itself."""
    try:
        value = yaml.safe_load(data)
        if rng.random() < 0.1:
            _own_parent(value, rng)
        else:
            value = _changed(value, rng)
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode(errors="surrogatepass")
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, UnicodeError, AttributeError):
        return as_bytes(data, rng, others)


def _own_parent(value: Any, rng: random.Random) -> None:
    """Put a branch below itself."""
    branches = [place for place in _places(value) if isinstance(place[0][place[1]], dict | list)]
    if branches:
        holder, key = rng.choice(branches)
        branch = holder[key]
        if isinstance(branch, dict):
            branch[rng.choice([*branch, "a"])] = branch
        else:
            branch.append(branch)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of every value below."""
    found, todo = list[tuple[Any, Any]](), [value]
    while todo and len(found) < 5000:
        holder = todo.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else []
        found += [(holder, key) for key in keys]
        todo += [holder[key] for key in keys]
    return found


def _changed(value: Any, rng: random.Random) -> Any:
    places = _places(value)
    if not places:
        return rng.choice(VALUES)
    holder, key = rng.choice(places)
    what = rng.randrange(8)
    if what <= 2:
        holder[key] = rng.choice(VALUES)
    elif what == 3:
        del holder[key]
    elif what == 4:
        other, there = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[there]))
    elif what == 5:
        holder[key] = rng.choice(([holder[key]], {"a": holder[key]}, str(holder[key]), [holder[key]] * 40))
    elif what == 6 and isinstance(holder, dict):
        holder[rng.choice((*WORDS, *(k for h, k in places if isinstance(k, str))))] = holder.pop(key)
    else:
        holder[key] = _deep(rng.choice(DEPTHS[:-1]))
    return value


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# ---------------------------------------------------------------- XML


def as_xml(data: bytes, rng: random.Random, _others: list[bytes]) -> bytes:
    """An attribute, a text or an element that is another; the brackets stay."""
    text = data.decode(errors="replace")
    what = rng.randrange(5)
    attributes = list(re.finditer(r'([\w-]+)="([^"]*)"', text))
    elements = list(re.finditer(r"<(\w+)[^<>]*>[^<]*</\1>", text))
    if what <= 1 and attributes:
        match = rng.choice(attributes)
        pieces = re.split(r"([,;])", match[2])
        pieces[rng.randrange(len(pieces))] = rng.choice(WORDS)
        word = "".join(pieces) if rng.random() < 0.6 else rng.choice(WORDS)
        text = f"{text[: match.start(2)]}{_escaped(word)}{text[match.end(2) :]}"
    elif what == 2 and attributes:
        match = rng.choice(attributes)
        new = rng.choice(attributes)[1] if rng.random() < 0.5 else ""
        text = f"{text[: match.start()]}{f'{new}={chr(34)}{match[2]}{chr(34)}' if new else ''}{text[match.end() :]}"
    elif what == 3 and elements:
        match = rng.choice(elements)
        text = text[: match.start()] + match[0] * rng.choice((0, 2, 30)) + text[match.end() :]
    elif elements:
        match = rng.choice(elements)
        tag = rng.choice(("image", "track", "meta", "mask", "polygon", "a", "annotations", "box"))
        inner = f"<{tag}>" * rng.choice(DEPTHS[:3]) + _escaped(rng.choice(WORDS))
        text = text[: match.start()] + inner + match[0] + f"</{tag}>" * inner.count(f"<{tag}>") + text[match.end() :]
    return text.encode(errors="surrogatepass")


def _escaped(word: str) -> str:
    return word.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


# ---------------------------------------------------------------- what has a frame


def as_png(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A PNG whose chunks are damaged inside, in order or in number, and whose checksums are right all the same."""
    chunks, at = list[tuple[bytes, bytes]](), len(_PNG)
    while at + 8 <= len(data) and len(chunks) < 1000:
        size = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += size + 12
    if not chunks:
        return as_bytes(data, rng, others)
    i = rng.randrange(len(chunks))
    kind, inside = chunks[i]
    what = rng.randrange(5)
    if what <= 1:
        chunks[i] = kind, as_bytes(inside, rng, [inside])
    elif what == 2 and kind == b"IDAT":
        try:
            plain = zlib.decompressobj().decompress(inside, _MOST_PLAIN)  # it may have been blown up before
        except zlib.error:
            plain = b"\0" * 10
        chunks[i] = kind, zlib.compress(as_bytes(plain, rng, [plain]) * rng.choice((1, 1, 1, 200)))
    elif what == 3:
        new = rng.choice(
            (b"PLTE", b"tRNS", b"eXIf", b"iCCP", b"zTXt", b"acTL", b"fcTL", b"fdAT", b"IHDR", b"IEND", b"gAMA")
        )
        chunks.insert(
            i + 1, (new, rng.choice((b"", rng.randbytes(26), inside[:64], b"x\0\0" + zlib.compress(b"0" * 10**5))))
        )
    else:
        chunks.insert(rng.randrange(len(chunks)), chunks.pop(i))
    framed = (
        len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big") for name, body in chunks
    )
    return _PNG + b"".join(framed)


def as_npz(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A zip file of one damaged array."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inner = archive.read(archive.infolist()[0])
    except Exception:  # damaged before: its bytes will do
        return as_bytes(data, rng, others)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for i in range(rng.choice((1, 1, 1, 0, 2))):
            archive.writestr(f"arr_{i}.npy", as_npy(inner, rng, others))
    return buffer.getvalue()


def as_npy(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """An array whose header says something else."""
    end = data.find(b"\n")
    if end < 0 or rng.random() < 0.3:
        return as_bytes(data, rng, others)
    head = data[10:end].decode("latin-1")
    shapes = ("(0, 0)", "(12, 16)", "(16, 12)", "(192,)", "()", "(-1, 5)", "(10**9, 10**9)", "(9999999999, 9999999999)")
    more = (
        "(1, 12, 16)",
        "(12, 16, 3)",
        "(2048, 2048)",
        "(True, 16)",
        "(12.0, 16)",
        "'a'",
        "(12, 16, 1, 1)",
        "(64, 3)",
    )
    kinds = (
        "'|O'",
        "'<f8'",
        "'|b1'",
        "'<c16'",
        "'|S5'",
        "'<U3'",
        "'<M8[s]'",
        "[('a', '<i4')]",
        "'<i3'",
        "'>u2'",
        "'|V8'",
    )
    if rng.random() < 0.5:
        head = re.sub(r"'shape': .*?\),", lambda _: f"'shape': {rng.choice((*shapes, *more))},", head)
    else:
        head = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {rng.choice(kinds)}", head)
    if rng.random() < 0.2:
        head = head.replace("False", "True")
    head = head.rstrip()[:60_000] + "\n"
    body = data[end + 1 :]
    if rng.random() < 0.5:
        body += bytes(rng.choice((0, 8, 4096)))
    return data[:8] + struct.pack("<H", len(head)) + head.encode("latin-1") + body


def as_safetensors(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A file of tensors whose header is other JSON, its length told rightly or nearly so."""
    size = int.from_bytes(data[:8], "little")
    if size > len(data) or rng.random() < 0.2:
        return as_bytes(data, rng, others)
    head = as_json(data[8 : 8 + size], rng, others)
    told = len(head) + rng.choice((0, 0, 0, 0, 1, -1, 2**40))
    body = as_bytes(data[8 + size :], rng, others) if rng.random() < 0.2 else data[8 + size :]
    return max(0, told).to_bytes(8, "little") + head + body


_BY_SUFFIX: dict[str, Change] = {
    ".json": as_json,
    ".jsonl": as_json_lines,
    ".yaml": as_yaml,
    ".xml": as_xml,
    ".npz": as_npz,
    ".npy": as_npy,
    ".safetensors": as_safetensors,
}
