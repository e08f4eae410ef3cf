"""What a folder holds: files listed safely, images paired with masks, parts and classes told from names.

The readers in `formats` share these. Everything works on plain strings with forward slashes, so that a million files
cost seconds and no picture is opened.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ftcseg import files
from ftcseg.errors import DataError, LayoutError, UnsafePathError
from ftcseg.types import ClassInfo, ClassTable, Color, Finding, Found, MaskCoding, MaskFile, Part, Record

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif"})
MASK_SUFFIXES = IMAGE_SUFFIXES | {".npy", ".npz"}

MASK_ENDINGS = (
    *("_mask", "_masks", "_label", "_labels", "_gt", "_seg", "_segmentation", "_annotation", "_anno"),
    *("-mask", "-label", "-gt", "-seg", "_labelIds", "_labelTrainIds", "_L"),
)
"""What tools append to an image's name to make the name of its mask."""

IMAGE_FOLDERS = ("images", "image", "imgs", "img", "jpegimages", "frames", "rgb")
MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "annotation", "gt", "segmentationclass")
MASK_FOLDER_ENDINGS = ("_masks", "_labels", "annot")
"""What makes the folder of masks out of the name of a part: train/ has its masks in train_masks/."""

PART_NAMES: Mapping[str, Part] = {
    **dict.fromkeys(("train", "training", "train_val", "trainval"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
UNLABELLED_NAMES = frozenset({"unlabelled", "unlabeled"})

PART_LISTS: tuple[tuple[str, Part], ...] = (
    ("test.txt", "test"),
    ("test_ids.txt", "test"),
    ("val.txt", "val"),
    ("val_ids.txt", "val"),
    ("train.txt", "train"),
    ("train_ids.txt", "train"),
)
"""Lists that may lie at the root. Held-out parts come first: an image in two lists stays held out."""

NAME_FILES = ("classes.txt", "class_names.txt", "labels.txt")
BACKGROUND_NAMES = frozenset({"background", "_background_", "__background__", "bg"})
VOID_NAMES = frozenset({"void", "ignore", "__ignore__", "ignored", "unlabelled", "unlabeled"})
MAX_CLASSES = 32_767  # class ids are int16
MAX_SHOWN = 80
"""Characters of an id or a size that stand in a message."""
DEPTH = 3  # how many folders down a quick look goes

_MACHINE_LITTER = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN"})


# ---------------------------------------------------------------- findings


def spelled(value: object) -> str:
    """A stranger's value as text; half a character, which JSON may hold and nothing else, is written out."""
    return str(value).encode(errors="backslashreplace").decode()


def legible(value: object) -> str:
    """The same for a message: short."""
    text = spelled(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


class Tally:
    """Findings, one for each kind and source however many files share it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Finding] = {}

    def add(self, finding: Finding, source: str = "") -> None:
        """Count one more; the example kept is the first by file name, so it does not depend on the disk's order."""
        key = (finding.kind, source)
        old = self._found.get(key, finding)
        example = finding if finding.file < old.file else old
        count = finding.count + (old.count if key in self._found else 0)
        self._found[key] = replace(example, count=count)

    def findings(self) -> tuple[Finding, ...]:
        """All of them, in the order in which they first occurred."""
        return tuple(self._found.values())


def found(layout: str, root: Path, records: list[Record], tally: Tally) -> Found:
    """A reader's answer; a folder without a single image, and nothing to say about it, is a LayoutError."""
    if not records and not tally.findings():
        raise LayoutError(
            f"{root} was read as {layout!r}, but holds no images.",
            remedy=f"Images end in {', '.join(sorted(IMAGE_SUFFIXES))}.",
            kind="no-images",
        )
    return Found(layout, records, findings=tally.findings())


# ---------------------------------------------------------------- listing


def walk(root: Path, folder: str, suffixes: Collection[str], tally: Tally) -> list[str]:
    """Files below `root/folder` with one of the suffixes, relative to the root, sorted.

    Each real folder is read once, so links cannot loop; what lies outside the root is reported and left out.
    """
    top, start = os.path.realpath(root), os.path.realpath(root / folder)
    listed: list[str] = []
    seen: set[str] = set()
    plain, linked = [f"{folder}/" if folder else ""], list[str]()
    while plain or linked:  # links last: a file is listed under its own path, not under that of a link
        prefix = plain.pop() if plain else linked.pop(0)
        real = os.path.realpath(root / prefix)
        if not _is_below(real, top):
            tally.add(_outside(prefix, "folder"))
        elif real in seen or (seen and _is_below(start, real)):
            detail = "A link leads to a folder that is read already."
            tally.add(Finding("linked-folder", prefix, detail, "Nothing to do; it is read once.", severity="note"))
        else:
            seen.add(real)
            for name, is_folder, is_link in _entries(real, prefix, suffixes, tally):
                if is_folder:
                    (linked if is_link else plain).append(f"{prefix}{name}/")
                elif is_link and not _is_below(os.path.realpath(f"{real}/{name}"), top):
                    tally.add(_outside(prefix + name, "file"))
                else:
                    listed.append(prefix + name)
    listed.sort()
    return listed


def _entries(real: str, prefix: str, suffixes: Collection[str], tally: Tally) -> Iterator[tuple[str, bool, bool]]:
    """(name, is a folder, is a link) of what is worth a look in one folder."""
    try:
        with os.scandir(real) as entries:
            for entry in entries:
                name = entry.name
                if _is_litter(name):
                    continue
                wanted = suffix(name) in suffixes
                if not name.isascii() and not _is_text(name):
                    tally.add(Finding("bad-name", ascii(prefix + name), "The name is not UTF-8.", "Rename the file."))
                elif _says_yes(entry.is_dir):
                    yield name, True, entry.is_symlink()
                elif wanted and _says_yes(entry.is_file):
                    yield name, False, entry.is_symlink()
                elif wanted:
                    detail = "It is a link to nothing, or no ordinary file."
                    tally.add(Finding("broken-link", prefix + name, detail, "Mend the link or remove it."))
    except OSError as error:
        detail = f"The folder cannot be read: {error.strerror}."
        remedy = "Check that it exists and may be read."
        tally.add(Finding("unreadable-folder", prefix or ".", detail, remedy, severity="error"))


def _is_litter(name: str) -> bool:
    return name.startswith(".") or name in _MACHINE_LITTER


def _says_yes(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except OSError:  # a link that points to itself
        return False


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_below(real: str, top: str) -> bool:
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def _outside(file: str, what: str) -> Finding:
    detail = f"The {what} is a link that leads outside the set's root; it is not read."
    return Finding("unsafe-path", file, detail, "Copy what it points to below the root.", severity="error")


def subfolders(folder: Path) -> dict[str, str]:
    """Names of the direct sub-folders by their lower-case spelling; of two that differ in case, the first by name."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if not _is_litter(e.name) and _says_yes(e.is_dir))
    except OSError:
        return {}
    return {name.casefold(): name for name in reversed(names)}


def files_in(folder: Path, suffixes: Collection[str]) -> Iterator[str]:
    """Names of the files with such a suffix directly in the folder, as the disk gives them: for a quick look."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if suffix(entry.name) in suffixes and not _is_litter(entry.name) and _says_yes(entry.is_file):
                    yield entry.name
    except OSError:
        return


def holds(folder: Path, suffixes: Collection[str], depth: int = 0) -> bool:
    """Whether a file with such a suffix lies in the folder or at most `depth` folders below: a quick look."""
    if any(files_in(folder, suffixes)):
        return True
    below = [folder / name for name in subfolders(folder).values()] if depth else []
    return any(holds(path, suffixes, depth - 1) for path in below if not path.is_symlink())


def is_file(path: Path) -> bool:
    """Whether it is an ordinary file; a name longer than the disk allows is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether it is a folder; a name longer than the disk allows is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


# ---------------------------------------------------------------- text files inside a set


def text_file(root: Path, names: Iterable[str]) -> str | None:
    """The first of the names that is an ordinary file below the root."""
    return next((name for name in names if is_file(root / name)), None)


def text_lines(root: Path, name: str) -> list[tuple[int, str]]:
    """The lines that are not empty, stripped, each with its number."""
    text = files.read_text(files.inside(root, name))
    # Not splitlines(): it also cuts at separators that are legal in file names.
    return [(number, line) for number, raw in enumerate(text.split("\n"), 1) if (line := raw.strip())]


class Listed:
    """Finds files that a text file names, looking into each folder once; links and other spellings take longer."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[str, dict[str, str]] = {}

    def find(self, name: str) -> str | None:
        """The path relative to the root, None where there is no such file; UnsafePathError where it leads out."""
        path = self._clean(name)
        folder, _, file = path.rpartition("/")
        plain = not path.startswith("/") and ".." not in path.split("/")  # what is not goes to `inside`, which refuses
        if plain and self._names(folder).get(_folded(file)) == file:
            return path
        return path if is_file(files.inside(self._root, path)) else None

    def find_safe(self, name: str) -> str | None:
        """Like `find`, but None also where it leads out, and quick in saying None: for guessing at names."""
        folder = ""
        for part in self._clean(name).split("/"):
            if _folded(part) not in self._names(folder):
                return None
            folder = f"{folder}/{part}" if folder else part
        try:
            return self.find(name)
        except UnsafePathError:
            return None

    @staticmethod
    def _clean(name: str) -> str:
        return PurePosixPath(name.replace("\\", "/")).as_posix()

    def _names(self, folder: str) -> dict[str, str]:
        """What lies in a folder by folded name: an ordinary file under its own name, anything else as ""."""
        if folder not in self._folders:
            try:
                with os.scandir(files.inside(self._root, folder) if folder else self._root) as entries:
                    plain = [(e.name, not e.is_symlink() and _says_yes(e.is_file)) for e in entries]
            except (OSError, UnsafePathError):  # `find` goes on to tell the two apart
                plain = []
            self._folders[folder] = {_folded(name): name if is_plain else "" for name, is_plain in plain}
        return self._folders[folder]


def _folded(name: str) -> str:
    """One spelling of all those that a disk may take for the same name."""
    folded = name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()
    return name if folded == name else folded  # the same object, where it can be


def tell_missing(root: Path, name: str, source: str, where: str, tally: Tally) -> None:
    """Report a name that `source` gives, at the place `where` in it: unsafe if it leaves the root, else missing."""
    try:
        files.inside(root, name)
    except UnsafePathError as error:
        finding = Finding("unsafe-path", source, f"{where}: {error.what}", error.remedy, severity="error")
    else:
        detail = f"{where}: {name[:200]!r} is not there."
        finding = Finding("missing-file", source, detail, "Add the files, or take their names out.")
    tally.add(finding, source)


# ---------------------------------------------------------------- images and their masks


def suffix(name: str) -> str:
    """The suffix in lower case; of a name without a dot, something that is in no table."""
    return name[name.rfind(".") :].lower()


def stem(path: str) -> str:
    """The path without its suffix."""
    return path[: path.rfind(".")]


def without_ending(name: str) -> str:
    """A mask's stem without what tools append: `x_mask` becomes `x`."""
    if name.endswith(MASK_ENDINGS):  # one call, because most names have none
        return name.removesuffix(next(ending for ending in MASK_ENDINGS if name.endswith(ending)))
    return name


def without_folder(path: str) -> str:
    """The path one folder up: `train/RO/x` becomes `train/x`."""
    folder, _, name = path.rpartition("/")
    above, slash, _ = folder.rpartition("/")
    return above + slash + name


@dataclass(frozen=True, slots=True)
class Pairing:
    """Masks found for images; names are as they were given."""

    masks: list[str | None]
    """The mask of each image, in the order of the images."""
    twins: list[int]
    """Indices of images whose name differs from an earlier one only in the suffix."""
    rivals: list[str]
    """Second masks of an image."""
    copies: list[str]
    """Masks one folder deeper than an image of that name: SUIM's masks/RO/x.bmp beside masks/x.bmp."""
    orphans: list[str]
    """Masks without an image."""


def pair(images: list[str], masks: list[str], image_folder: str = "", mask_folder: str = "") -> Pairing:
    """Match by the path below the two folders, without suffix; then without a mask ending such as `_mask`.

    Both lists are sorted, so «the first by name» is the first met.
    """
    image_skip, mask_skip = (len(f"{folder}/") if folder else 0 for folder in (image_folder, mask_folder))
    index: dict[str, int] = {}
    twins = [i for i, image in enumerate(images) if index.setdefault(stem(image)[image_skip:], i) != i]
    result = Pairing([None] * len(images), twins, [], [], [])
    for mask in masks:
        name = stem(mask)[mask_skip:]
        i = index.get(name, -1)
        if i < 0:
            name = without_ending(name)
            i = index.get(name, -1)
        if i < 0:
            (result.copies if without_folder(name) in index else result.orphans).append(mask)
        elif result.masks[i] is None:
            result.masks[i] = mask
        else:
            result.rivals.append(mask)
    return result


def masks_beside(paths: list[str]) -> tuple[list[str], list[str]]:
    """(images, masks) of one folder: `x_mask.png` is a mask where there is also an `x` with any suffix."""
    stems = {stem(path) for path in paths}
    images: list[str] = []
    masks: list[str] = []
    for path in paths:
        bare = without_ending(stem(path))
        (masks if bare in stems and bare != stem(path) else images).append(path)
    return images, masks


def tell_pairing(images: list[str], pairing: Pairing, tally: Tally) -> None:
    """Report what could not be paired, once for each kind."""
    if twins := pairing.twins:
        detail = "Several images differ only in the suffix of their names; the first by name is used."
        tally.add(Finding("ambiguous", images[twins[0]], detail, "Keep one of each.", len(twins)), "image")
    if rivals := pairing.rivals:
        detail = "The image of this mask has another mask, which comes first by name and is used."
        tally.add(Finding("ambiguous", rivals[0], detail, "Keep one mask per image.", len(rivals)), "mask")
    if copies := pairing.copies:
        detail = "Masks one folder deeper than their images, as those of single classes are, are not read."
        remedy = "Nothing to do where they only repeat the combined masks."
        tally.add(Finding("class-masks", copies[0], detail, remedy, len(copies), "note"))
    if orphans := pairing.orphans:
        remedy = "Name image and mask alike, in the same sub-folder, or add the images."
        tally.add(Finding("mask-without-image", orphans[0], "No image has this name.", remedy, len(orphans)))


def tell_oracle(mask: str, tally: Tally) -> None:
    """Report a mask that is known for an image declared unlabelled."""
    detail = "It belongs to an image that is declared unlabelled; masks of such images are not read."
    remedy = "Move image and mask to the labelled ones if it may be learned from."
    tally.add(Finding("oracle-masks", mask, detail, remedy, severity="note"))


# ---------------------------------------------------------------- sections: an image folder with its mask folder


@dataclass(frozen=True, slots=True)
class Section:
    """A folder of images and the folder of their masks; without a `part`, the first sub-folder tells it."""

    images: str
    masks: str | None
    part: Part | None = None

    def place_of(self, folder: str) -> tuple[Part, bool]:
        """(part, whether masks are to be left alone) of the images in this folder."""
        below = folder.removeprefix(self.images).lstrip("/")
        part = self.part or PART_NAMES.get(below.split("/")[0].casefold(), "train")
        return part, not UNLABELLED_NAMES.isdisjoint(folder.casefold().split("/"))


def sections(root: Path) -> list[Section]:
    """Image folders with their mask folders: at the root, and in folders named after a part.

    images/ + masks/    train/images/ + train/masks/    train/ + train_masks/    test/*.png    unlabelled/*.png
    """
    top = subfolders(root)
    places: list[tuple[str, Part | None]] = [("", None)]
    places += [(f"{top[name]}/", part) for name, part in PART_NAMES.items() if name in top]
    places += [(f"{top[name]}/", "train") for name in sorted(UNLABELLED_NAMES) if name in top]
    result = []
    for place, part in places:
        names = subfolders(root / place)
        images = next((place + names[name] for name in IMAGE_FOLDERS if name in names), None)
        masks = next((place + names[name] for name in MASK_FOLDERS if name in names), None)
        if images is not None:
            result.append(Section(images, masks, part))
        elif (place or masks) and holds(root / place, IMAGE_SUFFIXES, DEPTH if place else 0):
            beside = (top.get(place.rstrip("/").casefold() + ending) for ending in MASK_FOLDER_ENDINGS)
            result.append(Section(place.rstrip("/"), masks or next(filter(None, beside), None), part))
    return result


def section_images(root: Path, section: Section, tally: Tally) -> list[str]:
    """The images of a section; a mask folder that lies among them is none of them."""
    images = walk(root, section.images, IMAGE_SUFFIXES, tally)
    inner = f"{section.masks}/"
    if section.masks is None or not inner.startswith(f"{section.images}/".lstrip("/")):
        return images
    return [image for image in images if not image.startswith(inner)]


def section_records(root: Path, section: Section, tally: Tally) -> list[Record]:
    """Images with their masks; one without a mask is unlabelled, and so is all in a folder of that name."""
    images = section_images(root, section, tally)
    if section.masks is None:
        images, masks = masks_beside(images)
    else:
        masks = walk(root, section.masks, MASK_SUFFIXES, tally)
    pairing = pair(images, masks, section.images, section.images if section.masks is None else section.masks)
    tell_pairing(images, pairing, tally)
    twins = set(pairing.twins)
    places: dict[str, tuple[Part, bool]] = {}
    records = []
    for i, (image, mask) in enumerate(zip(images, pairing.masks, strict=True)):
        if i in twins:
            continue
        folder = image.rpartition("/")[0]
        if folder not in places:
            places[folder] = section.place_of(folder)
        part, hidden = places[folder]
        if mask is not None and hidden:
            tell_oracle(mask, tally)
        records.append(Record(image, None if mask is None or hidden else MaskFile(mask), part))
    return records


# ---------------------------------------------------------------- parts told by lists


def with_listed_parts(root: Path, records: list[Record], tally: Tally) -> list[Record]:
    """Records with the parts that val.txt, val_ids.txt, ... at the root give them; see PART_LISTS."""
    lists: dict[str, list[str]] = {}
    for name, _ in PART_LISTS:
        if (root / name).is_file():
            lists[name] = _lines_or_finding(root, name, tally)
    if not lists:
        return records
    named = _images_named({line for lines in lists.values() for line in lines}, records)
    parts: dict[int, Part] = {}
    for name, part in PART_LISTS:
        if strangers := [line for line in lists.get(name, ()) if line not in named]:
            detail = f"{len(strangers)} of its lines, such as {strangers[0][:200]!r}, name no image or several."
            remedy = "Write one image's path, name, stem or number a line, or remove the list."
            tally.add(Finding("list-ignored", name, f"{detail} The list is not used.", remedy), name)
            continue
        for i in (named[line] for line in lists.get(name, ())):
            if parts.setdefault(i, part) != part:
                detail = f"It is listed as {part}, too; it is used as {parts[i]} only."
                tally.add(Finding("part-overlap", records[i].image, detail, "List each image once."))
    return [Record(r.image, r.mask, parts[i]) if i in parts else r for i, r in enumerate(records)]


def _lines_or_finding(root: Path, name: str, tally: Tally) -> list[str]:
    try:
        return [line for _, line in text_lines(root, name)]
    except DataError as error:
        tally.add(Finding("list-ignored", name, f"{error.what} The list is not used.", error.remedy), name)
        return []


def _images_named(lines: set[str], records: list[Record]) -> dict[str, int]:
    """The one record that each line names: by path, file name or stem, else by the number its stem ends in."""
    exact: dict[str, list[int]] = {}
    by_number: dict[str, list[int]] = {}
    for i, record in enumerate(records):
        path = record.image
        below = path.partition("/")[2]
        name = path.rpartition("/")[2]
        for key in {path, stem(path), below, stem(below), name, stem(name)} & lines:
            exact.setdefault(key, []).append(i)
        number = re.split("[-_]", stem(name))[-1]
        if number.isdecimal() and number in lines:
            by_number.setdefault(number, []).append(i)
    hits = {line: exact.get(line, by_number.get(line, [])) for line in lines}
    return {line: indices[0] for line, indices in hits.items() if len(indices) == 1}


# ---------------------------------------------------------------- classes


def class_table(names: Mapping[int, str], source: str) -> ClassTable:
    """Classes in the order of their stored values; a value that is not the id itself is kept with the class."""
    if len(set(names.values())) < len(names) or len(names) > MAX_CLASSES or not names:
        raise LayoutError(
            f"{source} names {len(names)} classes, {len(set(names.values()))} of them different.",
            remedy=f"Give each class its own name; at most {MAX_CLASSES:,} are possible.",
        )
    if odd := [name for name in names.values() if not name or not name.isprintable()]:
        raise LayoutError(f"{source} names a class {odd[0][:80]!r}.", remedy="Use visible characters only.")
    return ClassTable(
        tuple(
            ClassInfo(i, names[value], values=() if value == i else (value,), background=is_background(names[value]))
            for i, value in enumerate(sorted(names))
        )
    )


def is_background(name: str) -> bool:
    """Whether a class of this name is the background."""
    return name.casefold() in BACKGROUND_NAMES


def id_coding(classes: ClassTable, ignore: Iterable[int] = ()) -> MaskCoding:
    """The coding of masks that store each class as its value, or its id where it has none."""
    values = {value: c.id for c in classes for value in c.values or (c.id,)}
    return MaskCoding("ids", values=values, ignore=frozenset(ignore))


def color_coding(entries: list[tuple[str, Color]], source: str) -> tuple[ClassTable, MaskCoding]:
    """Classes and coding of a colour table: background first, then in the table's order; void is ignored.

    A name may have several colours, but a colour only one name.
    """
    owners: dict[Color, str] = {}
    for name, color in entries:
        if owners.setdefault(color, name) != name:
            raise LayoutError(
                f"{source} gives the colour {color} to both {owners[color]!r} and {name!r}.",
                remedy="Give each class its own colour.",
            )
    void = frozenset(color for color, name in owners.items() if name.casefold() in VOID_NAMES)
    names = sorted(
        dict.fromkeys(n for n in owners.values() if n.casefold() not in VOID_NAMES), key=lambda n: not is_background(n)
    )
    plain = class_table(dict(enumerate(names)), source)
    colors = {color: names.index(name) for color, name in owners.items() if color not in void}
    table = tuple(replace(c, colors=tuple(k for k, i in colors.items() if i == c.id)) for c in plain)
    return ClassTable(table), MaskCoding("colors", colors=colors, ignore_colors=void)


def listed_classes(root: Path, tally: Tally) -> ClassTable | None:
    """The classes of classes.txt, class_names.txt or labels.txt: a name a line, or `id name`; None if there is none."""
    name = text_file(root, NAME_FILES)
    if name is None:
        return None
    try:
        lines = [line for _, line in text_lines(root, name)]
        numbered = [re.fullmatch(r"(\d{1,5})[\s:,]+(\S.*)", line) for line in lines]
        pairs = [(int(m[1]), m[2]) for m in numbered if m] if all(numbered) else list(enumerate(lines))
        if len(dict(pairs)) < len(pairs):
            raise LayoutError(f"{name} gives a number twice.")
        if any(suffix(called) in IMAGE_SUFFIXES for _, called in pairs):
            raise LayoutError(f"{name} lists pictures, not classes.")
        return class_table(dict(pairs), name)
    except DataError as error:
        remedy = "Write one class name a line, or «id name»; or rename the file if it is something else."
        tally.add(Finding("class-names-ignored", name, f"{error.what} It is not used.", remedy))
        return None
