"""The page about a set: whole in itself, and whatever stands in the data is only text on it."""

from __future__ import annotations

import base64
import io
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from ftcseg import api
from ftcseg.report.page import bar, gallery, lead, page, section, swatch, table
from ftcseg.report.pictures import (
    BACKGROUND_COLOR,
    IGNORE_COLOR,
    OPACITY,
    PALETTE,
    class_colors,
    data_url,
    overlay,
    visible,
)
from ftcseg.types import IGNORE
from picture_sets import images_and_masks, picture, save

HOSTILE = "<script>alert('x')</script>\"&'"


class Seen(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(root: Path, tmp_path: Path) -> str:
    return api.dataset_page(api.doctor(root), tmp_path / "page.html").read_text(encoding="utf-8")


def pictures_on(text: str) -> list[NDArray[np.uint8]]:
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(code)))) for code in re.findall(r"base64,([^\"]+)", text)]


# ---------------------------------------------------------------- the page


@pytest.fixture
def hostile_page(tmp_path: Path) -> str:
    """The page of a set whose every name is an attack."""
    root = images_and_masks(tmp_path / "set", {"<img src=x onerror=y>": [[0, 0, 1]], "b": [[0, 0, 7]]})
    quoted = HOSTILE.replace("\\", "\\\\").replace('"', '\\"')
    (root / "dataset.yaml").write_text(f'ftcseg: 1\nname: "{quoted}"\nclasses: {{0: sea, 1: {{name: "{quoted}"}}}}')
    return page_of(root, tmp_path)


def test_names_are_shown_as_text(hostile_page: str) -> None:
    seen = Seen(hostile_page)
    assert "script" not in seen.tags
    assert HOSTILE in seen.text
    assert "<img src=x onerror=y>" in seen.text
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert seen.text.count(HOSTILE) >= 3  # title, heading, class table


def test_the_page_needs_no_network_and_runs_nothing(hostile_page: str) -> None:
    seen = Seen(hostile_page)
    assert not re.search(r"https?:", hostile_page)
    sources = [value for name, value in seen.attributes if name in ("src", "href")]
    assert sources
    assert all(value is not None and value.startswith("data:image/png;base64,") for value in sources)
    assert not {"script", "link", "iframe", "object", "form"} & set(seen.tags)


def test_the_page_forbids_what_it_does_not_need(hostile_page: str) -> None:
    policy = dict(Seen(hostile_page).attributes)["content"]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', hostile_page)
    sheet = hostile_page.partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert not [value for name, value in Seen(hostile_page).attributes if name == "style"]
    assert hostile_page.index("Content-Security-Policy") < hostile_page.index("<style>")


def test_the_page_begins_with_the_answer(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "set", {"a": [[0, 0, 1, 1, 2]], "b": None})
    text = Seen(page_of(root, tmp_path)).text
    assert "2 images, 1 with masks (grey8, layout images-masks), 3 classes; tail: class-2." in text
    assert "It can be used as it is." in text
    assert (tmp_path / "page.html").read_text().count('class="bar"') == 2  # none for background, which dwarfs them
    (root / "masks/a.png").write_bytes(b"")
    assert "1 findings keep it from being used as it is." in Seen(page_of(root, tmp_path)).text


def test_a_labelled_frame_has_two_pictures_and_an_unlabelled_one(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "set", {"a": [[0, 0, 1]], "b": None})
    assert len(pictures_on(page_of(root, tmp_path))) == 3


def test_findings_are_counted_by_kind(tmp_path: Path) -> None:
    root = images_and_masks(tmp_path / "set", {name: [[0, 0, 1]] for name in "abc"})
    for name in "ab":
        (root / f"masks/{name}.png").write_bytes(b"")
    assert '<span class="error">empty-file</span></td><td class="n">2</td>' in page_of(root, tmp_path)


def test_deep_and_many_channelled_frames_are_made_visible(tmp_path: Path) -> None:
    images = tmp_path / "set" / "images"
    images.mkdir(parents=True)
    ramp = np.linspace(30_000, 31_000, 64 * 64, dtype=np.uint16).reshape(64, 64)  # dark to the naked eye, and narrow
    Image.fromarray(ramp).save(images / "a.png")
    tifffile.imwrite(
        images / "b.tif", np.repeat(ramp[:, :, None], 5, axis=2), photometric="minisblack", planarconfig="contig"
    )
    tifffile.imwrite(images / "c.tif", (ramp / 1e9).astype(np.float32))
    tifffile.imwrite(images / "d.tif", np.full((64, 64), np.nan, np.float32))
    shown = pictures_on(page_of(tmp_path / "set", tmp_path))
    assert [p.shape for p in shown] == [(64, 64, 3)] * 4
    for stretched in shown[:3]:
        assert (stretched.min(), stretched.max()) == (0, 255)
        assert np.unique(stretched).size > 200
    assert shown[3].max() == 0


# ---------------------------------------------------------------- parts of a page


def test_parts_escape_what_they_are_given() -> None:
    for text in (
        page(HOSTILE, [], HOSTILE),
        lead(HOSTILE),
        section(HOSTILE),
        gallery([((HOSTILE,), HOSTILE)]),
        table((HOSTILE,), []),
    ):
        assert "<script>" not in text
        assert HOSTILE in Seen(text).text or f'alt="{HOSTILE}"' not in text


def test_a_table_sets_numbers_to_the_right() -> None:
    text = table(("name", "n"), [("a", "1"), ("b", "2")], numbers=(1,))
    assert text.count('<td class="n">') == 2
    assert '<td>a</td><td class="n">1</td>' in text
    with pytest.raises(ValueError, match="zip"):
        table(("one",), [("a", "b")])


def test_a_swatch_and_a_bar() -> None:
    assert "background:#0a00ff" in swatch((10, 0, 255))
    assert "width:4.00em" in bar(0.5)
    assert "width:0.00em" in bar(-1)


# ---------------------------------------------------------------- pictures


def test_background_is_dark_and_objects_differ() -> None:
    colors = class_colors([True, False, False, True, False])
    assert colors == [BACKGROUND_COLOR, PALETTE[0], PALETTE[1], BACKGROUND_COLOR, PALETTE[2]]
    assert len(class_colors([False] * 100)) == 100


def test_plain_bytes_are_shown_as_they_are() -> None:
    grey = picture(0, 5, 6)[:, :, None]
    np.testing.assert_array_equal(visible(grey), np.repeat(grey, 3, axis=2))
    color = picture(0, 5, 6, 4)
    np.testing.assert_array_equal(visible(color), color[:, :, :3])
    two = picture(0, 5, 6, 2)
    np.testing.assert_array_equal(visible(two), np.repeat(two[:, :, :1], 3, axis=2))


def test_a_flat_deep_frame_is_no_division_by_zero() -> None:
    assert visible(np.full((3, 3, 1), 7, np.uint16)).max() == 0


def test_colours_lie_over_the_picture_but_not_on_hidden_classes() -> None:
    labels = np.array([[0, 1, IGNORE]], np.int16)
    shown = overlay(np.full((1, 3, 3), 100, np.uint8), labels, [(9, 9, 9), (200, 0, 50)], {0})
    assert shown[0, 0].tolist() == [100, 100, 100]
    # 0.55 of the class colour and 0.45 of the picture's 100.
    assert np.abs(shown[0, 1] - [155.0, 45.0, 72.5]).max() <= 1
    assert np.abs(shown[0, 2] - (OPACITY * np.array(IGNORE_COLOR) + 45)).max() <= 1


def test_a_picture_in_an_address_is_no_larger_than_asked() -> None:
    for shape, expected in (((100, 400), (90, 360)), ((50, 40), (50, 40)), ((1, 10_000), (1, 360))):
        url = data_url(np.zeros((*shape, 3), np.uint8), 360)
        assert url.startswith("data:image/png;base64,")
        (shown,) = pictures_on(f'"{url}"')
        assert shown.shape[:2] == expected


def test_a_class_beyond_the_palette_has_a_colour(tmp_path: Path) -> None:
    root = tmp_path / "set"
    save(root / "images/a.png", picture(0, 1, 40))
    save(root / "masks/a.png", np.arange(40)[None])
    assert "class-39" in Seen(page_of(root, tmp_path)).text
