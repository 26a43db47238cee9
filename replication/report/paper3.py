"""What paper 3 reports: H. Liu et al., Inflate and Shrink, EMNLP 2021, on Flickr30k and on 1,000 pictures of COCO.

Six recalls a run: text to image R@1, R@5, R@10, then image to text. Runs are called as benchmarks/paper3.py calls them:
F, B and I32 are its fast, base and inflated models, L8 the base model of the first 8 fragments, B-L8 that one shrunken
from the base model.
"""

from replication.report.paper import Six

FLICKR: dict[str, Six] = {
    "F": (47.7, 77.0, 85.5, 59.9, 86.8, 93.2),
    "B": (60.6, 85.6, 91.6, 75.8, 93.5, 96.3),
    "I16": (62.9, 86.4, 92.3, 76.9, 94.0, 97.5),
    "I32": (63.5, 86.9, 92.2, 77.6, 94.4, 97.6),
    "I64": (63.7, 86.5, 92.4, 77.9, 94.3, 97.8),
    "B-F": (58.2, 84.6, 90.9, 73.0, 92.6, 96.1),
    "I-F": (60.9, 85.5, 91.9, 76.3, 93.0, 96.1),
    "I-B": (64.5, 88.2, 92.4, 79.4, 95.6, 97.7),
    "I-B-F": (62.2, 87.0, 92.5, 77.1, 93.8, 96.9),
}
"""Tables 1 and 2, Flickr30k."""

COCO: dict[str, Six] = {
    "L1": (56.1, 85.9, 91.8, 69.4, 92.7, 97.1),
    "L2": (59.7, 87.6, 93.1, 71.6, 94.9, 98.2),
    "L4": (61.8, 89.1, 94.8, 76.2, 95.8, 98.3),
    "L8": (63.8, 89.9, 95.7, 78.7, 95.6, 98.5),
    "L16": (65.7, 91.6, 96.1, 80.1, 97.3, 99.1),
    "B": (68.1, 91.9, 96.4, 82.0, 97.6, 99.2),
    "I16": (68.8, 92.1, 96.6, 82.6, 97.2, 99.1),
    "I32": (69.3, 92.4, 96.7, 82.6, 97.6, 99.0),
    "I64": (69.2, 92.6, 96.4, 82.5, 97.6, 99.3),
    "B-L1": (66.0, 91.7, 96.1, 79.1, 96.8, 98.6),
    "B-L2": (66.5, 91.8, 96.0, 79.4, 97.2, 98.6),
    "B-L4": (66.8, 91.7, 96.4, 79.9, 97.1, 98.5),
    "B-L8": (67.4, 91.7, 96.3, 79.5, 97.5, 98.9),
    "B-L16": (67.7, 92.1, 96.5, 80.7, 97.3, 99.3),
    "B-F": (66.0, 91.7, 96.1, 79.1, 96.8, 98.6),
    "I-B": (70.5, 93.0, 97.3, 83.7, 97.5, 99.6),
    "I-B-F": (68.5, 92.5, 97.1, 82.4, 97.3, 99.1),
}
"""Tables 6 and 7, and what Figure 3 draws: 1,000 pictures of COCO."""

TIMES = {"fast": 0.4, "base": 82.0, "inflated": 325.0}
"""Table 4: milliseconds to score 100,000 pictures for a query, on a V100."""
