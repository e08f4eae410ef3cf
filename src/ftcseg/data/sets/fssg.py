"""FSSG: eleven targets in forward-looking sonar, the set of the CTFS paper."""

from __future__ import annotations

from ftcseg.data.sets.sheet import Sheet, stored_ids
from ftcseg.types import ClassTable

SHEET = Sheet(
    name="fssg",
    title="FSSG: ten kinds of object in forward-looking sonar",
    classes=ClassTable.named(  # reading D8: background is 0, diver is 10
        "background",
        "block",
        "circle-cage",
        "steel-frame",
        "concrete-column",
        "steel-plate",
        "pot",
        "square-cage",
        "tire",
        "underwater-robot",
        "diver",
    ),
    coding=stored_ids(11),
    layout="images-masks",
    folders=("fssg", "FSSG"),
    frames=3761,
    train=3021,
    val=740,
    parts="Its 740 validation names come with its authors' code, not with ftcseg: keep that list or folder beside it.",
    source="https://github.com/pingggg516/CTFS",
    licence="Given out by its authors for research.",
    cite="Guo et al., CTFS: Collaborative Teacher Framework for Forward-Looking Sonar Image Semantic Segmentation with "
    "Extremely Limited Labels, arXiv:2603.21071, 2026.",
    obtain="Ask its authors through https://github.com/pingggg516/CTFS, who share it on Baidu for research.",
    defects=("Written from the paper and its code: the masks themselves have not been seen by ftcseg's authors.",),
)
