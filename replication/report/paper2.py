"""What paper 2 reports: Z. Fu et al., Learning Semantic Relationship among Instances, CVPR 2023 (HREM).

Runs are called as benchmarks/paper2.py calls them: fusion is its whole model, base the one without relations among
instances. The ablations give R@1 and R@5 alone.
"""

from replication.report.paper import Six

Four = tuple[float, float, float, float]

COCO: dict[str, Six] = {
    "fusion": (43.9, 73.6, 83.3, 62.3, 87.6, 93.4),
    "standalone": (44.0, 73.7, 83.4, 61.8, 87.0, 93.2),
    "full": (45.4, 75.1, 84.3, 64.0, 88.5, 93.7),
    "bigru": (40.0, 70.6, 81.2, 58.9, 85.3, 92.1),
}
"""Table 1: text to image R@1, R@5, R@10, then image to text, on 5,000 pictures of COCO, with BERT and with a BiGRU."""

HIERARCHY: dict[str, Four] = {
    "no-fragments": (62.3, 86.2, 81.5, 94.9),
    "no-visual": (62.4, 86.2, 81.8, 95.1),
    "no-textual": (63.2, 87.0, 83.1, 95.9),
    "base": (60.9, 85.3, 80.1, 94.8),
    "intra": (61.2, 85.2, 80.5, 94.7),
    "inter": (62.6, 86.4, 82.2, 95.5),
    "fusion": (63.5, 87.1, 83.3, 96.0),
}
"""Table 3a: text to image R@1, R@5, then image to text, on Flickr30k."""

INSTANCES: dict[str, Four] = {
    "no-connection": (61.5, 86.3, 81.4, 95.1),
    "no-relevance": (61.9, 86.5, 81.7, 95.3),
    "no-consistency": (61.8, 86.7, 81.6, 95.6),
    "no-regularisation": (62.9, 86.9, 82.8, 95.8),
    "no-neighbours": (63.1, 87.0, 82.8, 95.9),
    "fusion": (63.5, 87.1, 83.3, 96.0),
}
"""Table 3b, likewise."""

SPECIAL: dict[tuple[str, str], Four] = {
    ("hardest", "5%"): (32.0, 34.8, 74.6, 76.0),
    ("hardest", "10%"): (38.8, 40.4, 72.0, 75.0),
    ("hardest", "20%"): (45.1, 47.1, 74.5, 78.0),
    ("infrequent", "5%"): (38.4, 40.8, 79.2, 84.0),
    ("infrequent", "10%"): (41.2, 43.6, 78.0, 81.2),
    ("infrequent", "20%"): (46.6, 48.4, 75.0, 82.0),
}
"""Table 4: text to image R@1 without and with relations among instances, then image to text, on Flickr30k."""
