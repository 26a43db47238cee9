"""What paper 1 reports: G. Geigle et al., Retrieve Fast, Rerank Smart, TACL 2022, with OSCAR on Flickr30k.

Six recalls a row: text to image R@1, R@5, R@10, then image to text, as its tables have them (image retrieval first).
"""

from collections.abc import Mapping

from replication.report.estimates import Estimate
from replication.report.results import R_SUM, RECALLS, Metric, System

Six = tuple[float, float, float, float, float, float]

SYSTEMS = {name: System(name) for name in ("CE", "BE", "SEP+COOP", "JOINT+COOP", "JOINT+CE", "JOINT+BE")}
CE, BE, SEP, JOINT, JOINT_CE, JOINT_BE = SYSTEMS.values()

TABLE_1: dict[System, Six] = {
    CE: (75.9, 93.3, 96.6, 88.5, 98.5, 99.2),
    BE: (72.0, 91.0, 94.7, 84.7, 97.1, 98.7),
    SEP: (76.0, 93.0, 95.0, 88.7, 98.3, 99.2),
    JOINT: (76.4, 93.6, 96.2, 89.4, 97.7, 99.0),
    JOINT_CE: (76.5, 93.4, 96.3, 89.0, 97.9, 99.1),
    JOINT_BE: (71.6, 91.5, 95.0, 86.3, 96.8, 98.6),
}

TABLE_5: dict[System, Six] = {
    System("BE", enlarged=True): (45.8, 69.1, 76.1, 71.1, 90.9, 94.9),
    System("SEP+COOP", enlarged=True): (55.5, 75.8, 80.1, 80.5, 93.8, 95.4),
    System("JOINT+COOP", enlarged=True): (55.9, 77.5, 82.9, 81.0, 92.9, 94.9),
}

TABLE_6: dict[System, Six] = {
    JOINT: (76.4, 93.6, 96.2, 89.4, 97.7, 99.0),
    CE.of("coco"): (67.2, 88.5, 92.7, 81.0, 95.5, 97.8),
    BE.of("coco"): (63.3, 86.4, 91.6, 78.2, 94.0, 97.3),
    SEP.of("coco"): (67.6, 89.0, 93.1, 82.4, 96.3, 98.2),
    JOINT.of("coco"): (70.0, 90.2, 94.1, 83.7, 96.8, 97.9),
}

TABLE_8: dict[System, Six] = {
    System("SEP+COOP", k=10): (75.9, 92.2, 93.4, 89.2, 97.8, 98.4),
    System("SEP+COOP", k=20): (76.0, 93.0, 95.0, 88.7, 98.3, 99.2),
    System("SEP+COOP", k=50): (75.9, 93.4, 96.3, 88.9, 98.4, 99.4),
    System("JOINT+COOP", k=10): (76.5, 93.2, 95.0, 88.9, 97.3, 98.6),
    System("JOINT+COOP", k=20): (76.4, 93.6, 96.2, 89.4, 97.7, 99.0),
    System("JOINT+COOP", k=50): (76.5, 93.5, 96.5, 89.1, 98.0, 98.9),
}

TABLE_9: dict[System, Six] = {
    System("SEP+COOP"): (76.0, 93.0, 95.0, 88.7, 98.3, 99.2),
    System("SEP+COOP", fusion="add", weight=0.1): (76.0, 92.7, 94.8, 86.4, 98.7, 99.2),
    System("SEP+COOP", fusion="add", weight=0.5): (75.7, 92.6, 94.7, 85.9, 98.5, 99.2),
    System("SEP+COOP", fusion="add", weight=0.9): (74.5, 92.5, 94.7, 85.1, 98.3, 99.2),
    System("SEP+COOP", fusion="norm_add", weight=0.1): (70.8, 90.2, 93.8, 86.2, 98.5, 99.2),
    System("SEP+COOP", fusion="norm_add", weight=0.5): (70.7, 90.3, 93.7, 85.4, 98.4, 99.2),
    System("SEP+COOP", fusion="norm_add", weight=0.9): (70.3, 90.1, 93.7, 83.8, 97.6, 98.8),
    System("JOINT+COOP"): (76.4, 93.6, 96.2, 89.4, 97.7, 99.0),
    System("JOINT+COOP", fusion="add", weight=0.1): (76.7, 93.3, 95.8, 88.5, 98.0, 99.1),
    System("JOINT+COOP", fusion="add", weight=0.5): (75.6, 93.1, 95.5, 87.2, 97.8, 99.1),
    System("JOINT+COOP", fusion="add", weight=0.9): (74.6, 92.8, 95.5, 87.3, 97.8, 99.1),
    System("JOINT+COOP", fusion="norm_add", weight=0.1): (72.8, 92.0, 95.2, 87.6, 97.9, 99.2),
    System("JOINT+COOP", fusion="norm_add", weight=0.5): (72.5, 92.0, 95.2, 87.3, 97.9, 99.0),
    System("JOINT+COOP", fusion="norm_add", weight=0.9): (72.3, 91.8, 95.2, 86.4, 97.0, 99.0),
}


class Reported:
    """The numbers of the paper, to be asked for as our own are."""

    def __init__(self, *tables: Mapping[System, Six]) -> None:
        self._rows = {system: six for table in tables for system, six in table.items()}

    def estimate(self, system: System, metric: Metric = R_SUM) -> Estimate:
        """One number of a system; empty where the paper has none."""
        six = self._rows.get(system)
        if six is None:
            return Estimate({})
        return Estimate({0: sum(six) if metric == R_SUM else six[RECALLS.index(metric)]})


REPORTED = Reported(TABLE_1, TABLE_5, TABLE_6, TABLE_8, TABLE_9)
