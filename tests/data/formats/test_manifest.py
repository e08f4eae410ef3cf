"""Manifests written by hand, line by line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.data.formats import manifest
from ftcseg.errors import DataError, LayoutError, UsageError
from ftcseg.types import PARTS, ClassFiles, MaskFile, Record, Shapes

RECORDS = [
    Record("a/b.png", MaskFile("m/b.png"), "train"),
    Record("a/c.png"),
    Record("a/ö 1.png", ClassFiles(((2, "rope/d.png"), (1, "wreck/d.png"))), "val"),
]
LINES = """\
{"image": "a/b.png", "mask": "m/b.png", "part": "train"}

{"image": "a/c.png", "mask": null}
{"image": "a/ö 1.png", "masks": {"2": "rope/d.png", "1": "wreck/d.png"}, "part": "val"}
"""


def write(root: Path, text: str, name: str = "manifest.jsonl") -> Path:
    (root / name).write_text(text, encoding="utf-8")
    return root / name


@pytest.mark.parametrize("name", ["manifest.jsonl", "records.jsonl"])
def test_each_line_is_a_record(tmp_path: Path, name: str) -> None:
    assert not manifest.can_read(tmp_path)
    write(tmp_path, LINES, name)
    assert manifest.can_read(tmp_path)
    found = manifest.records(tmp_path)
    assert (found.layout, found.records, found.findings) == ("manifest", RECORDS, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("set.yaml", "records:\n- {image: a/b.png, mask: m/b.png}\n- {image: a/c.png, part: train}\n"),
        ("set.yml", "- {image: a/b.png, mask: m/b.png}\n- {image: a/c.png}\n"),
        ("set.json", '{"records": [{"image": "a/b.png", "mask": "m/b.png"}, {"image": "a/c.png"}]}'),
    ],
)
def test_the_same_objects_may_stand_in_a_list(tmp_path: Path, name: str, text: str) -> None:
    assert manifest.read_manifest(tmp_path, write(tmp_path, text, name)).records == RECORDS[:2]


def test_yaml_may_number_its_classes_without_quotes(tmp_path: Path) -> None:
    file = write(tmp_path, "records:\n- image: a.png\n  masks: {1: b.png}\n", "set.yaml")
    assert manifest.read_manifest(tmp_path, file).records == [Record("a.png", ClassFiles(((1, "b.png"),)))]


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    manifest.write_manifest(tmp_path / "manifest.jsonl", iter(RECORDS))
    assert manifest.records(tmp_path).records == RECORDS
    assert (tmp_path / "manifest.jsonl").read_bytes().count(b"\n") == 3


NAMES = st.from_regex(r"[a-zö ]{1,9}/[0-9a-z_]{5,9}\.png", fullmatch=True)
MASKS = st.one_of(
    st.none(),
    st.builds(MaskFile, NAMES),
    st.dictionaries(st.integers(0, 32767), NAMES, min_size=1).map(lambda d: ClassFiles(tuple(d.items()))),
)


@settings(deadline=None, max_examples=25)  # each example waits for the disk
@given(st.lists(st.builds(Record, NAMES, MASKS, st.sampled_from(PARTS)), min_size=1, unique_by=lambda r: r.image))
def test_any_records_come_back(tmp_path_factory: pytest.TempPathFactory, records: list[Record]) -> None:
    root = tmp_path_factory.mktemp("set")
    manifest.write_manifest(root / "manifest.jsonl", records)
    assert manifest.records(root).records == records


def test_a_manifest_that_cannot_be_written_leaves_no_half_of_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"drawn from x\.json"):
        manifest.write_manifest(tmp_path / "m.jsonl", [*RECORDS, Record("d.png", Shapes("coco", "x.json", "1"))])
    with pytest.raises(UsageError, match="two masks for one class"):
        manifest.write_manifest(tmp_path / "m.jsonl", [Record("d.png", ClassFiles(((1, "a"), (1, "b"))))])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"image": "b.png", "picture": "m.png"}', r"no key 'picture'\. Known are image, mask, masks, part"),
        ('{"image": "b.png", "part": "training"}', r"no part 'training'\. Known are train, val, test"),
        ('{"image": "b.png", "part": ["val"]}', "no part"),
        ('{"mask": "b.png"}', "no «image»"),
        ('{"image": 7}', "'7' is no path"),
        ('{"image": null}', "'None' is no path"),
        ('{"image": "b.png", "mask": ["m.png"]}', "is no path"),
        ('{"image": "b.png", "mask": "m.png", "masks": {"1": "m.png"}}', "both «mask» and «masks»"),
        ('{"image": "b.png", "masks": {"wreck": "m.png"}}', "no table of class ids"),
        ('{"image": "b.png", "masks": {"-1": "m.png"}}', "no table of class ids"),
        ('{"image": "b.png", "masks": {"40000": "m.png"}}', "no table of class ids"),
        ('{"image": "b.png", "masks": ["m.png"]}', "no table of class ids"),
        ('{"image": "\\ud800.png"}', "is not text"),
        ('["b.png"]', "is no object"),
        ('{"image": "b.png"', "is not JSON"),
        ('{"image": "' + "b" * 2**20 + '"}', "has more than 1,048,576 bytes"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    write(tmp_path, f'{{"image": "a.png"}}\n{line}\n')
    with pytest.raises(LayoutError, match=rf"manifest\.jsonl, line 2.*{said}"):
        manifest.records(tmp_path)


def test_bytes_that_are_no_text_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_bytes(b'\xef\xbb\xbf{"image": "a.png"}\n')
    assert manifest.records(tmp_path).records == [Record("a.png")]
    (tmp_path / "manifest.jsonl").write_bytes(b'{"image": "\xff.png"}\n')
    with pytest.raises(LayoutError, match="line 1 is not JSON"):
        manifest.records(tmp_path)


@pytest.mark.parametrize("name", ["../b.png", "/etc/passwd", "C:\\b.png", "a/../../b.png", "nul.png", "", "a\0b.png"])
@pytest.mark.parametrize("key", ["image", "mask"])
def test_paths_that_lead_out_are_reported_and_skipped(tmp_path: Path, name: str, key: str) -> None:
    entry = {"image": "b.png", key: name}
    write(tmp_path, f'{{"image": "a.png"}}\n{json.dumps(entry)}\n{json.dumps(entry)}\n')
    found = manifest.records(tmp_path)
    assert found.records == [Record("a.png")]
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.count) == ("unsafe-path", "error", 2)
    assert finding.detail.startswith(f"line 2: The path {name!r}")


def test_folders_that_lead_out_by_a_link_are_found_even_after_good_ones(tmp_path: Path) -> None:
    root = tmp_path / "set"
    (root / "in").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    names = ["in/00001.png", "in/00002.png", "out/00001.png", "out/00002.png"]
    write(root, "\n".join(json.dumps({"image": name}) for name in names))
    found = manifest.records(root)
    assert [r.image for r in found.records] == names[:2]
    assert [(f.kind, f.count) for f in found.findings] == [("unsafe-path", 2)]


def test_an_image_listed_twice_counts_once_however_it_is_spelt(tmp_path: Path) -> None:
    names = ["a/00001.png", "a/00001.png", "./a/00001.png", "a//00001.png", "a\\00001.png"]
    write(tmp_path, "\n".join(json.dumps({"image": name}) for name in names))
    found = manifest.records(tmp_path)
    assert found.records == [Record("a/00001.png")]
    (finding,) = found.findings
    assert (finding.kind, finding.count) == ("duplicate-image", 4)
    assert finding.detail.startswith("line 2: 'a/00001.png'")


def test_fifty_thousand_lines_share_their_parts(tmp_path: Path) -> None:
    lines = (f'{{"image": "images/frame_{i:06d}.png", "part": "val"}}\n' for i in range(50_000))
    write(tmp_path, "".join(lines))
    listed = manifest.records(tmp_path).records
    assert len(listed) == 50_000
    assert listed[-1] == Record("images/frame_049999.png", None, "val")
    assert listed[0].part is listed[-1].part


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_manifest_holds_no_images(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    with pytest.raises(LayoutError, match="holds no images"):
        manifest.records(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", "images: 3"), ("a.json", "7"), ("a.yaml", "- 1"), ("a.json", "{")]
)
def test_a_list_that_is_none_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(DataError):
        manifest.read_manifest(tmp_path, write(tmp_path, text, name))


def test_a_manifest_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"no manifest\.jsonl"):
        manifest.records(tmp_path)
    with pytest.raises(LayoutError, match="cannot be read"):
        manifest.read_manifest(tmp_path, tmp_path / "x.jsonl")
