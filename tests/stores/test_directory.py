import numpy as np
import pytest

from sightline.stores.row_index import RowIndex


@pytest.mark.parametrize("gap", [1, 2, 1000], ids=["no gaps", "few gaps", "many gaps"])
def test_ids_are_found_whether_they_have_gaps_or_not(gap: int) -> None:
    ids = gap * np.random.default_rng(0).permutation(500)
    row_index = RowIndex(ids, np.arange(0, 500, 3))
    there = {int(id): row for row, id in enumerate(ids) if row % 3}
    asked = np.arange(0, 600 * gap, max(1, gap // 2))
    assert row_index.find(asked).tolist() == [there.get(int(id), -1) for id in asked]
    assert row_index.rows_of(asked[::-1]).tolist() == sorted(there.values())
    row_index.remove(np.array([1]))
    row_index.append(np.array([ids[1], 10**12]))
    assert row_index.find(np.array([ids[1], ids[0], 10**12, 10**12 + 1])).tolist() == [500, -1, 501, -1]
