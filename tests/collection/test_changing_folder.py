"""Whatever happens to a folder between two runs, its collection afterwards is what a plain model of it says."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from collection.made_up import LONG_AGO, Instant, contents, digest, picture, put
from sightline.collection import index

PICTURES = [picture(seed) for seed in range(5)]
BROKEN = b"no picture"
NAMES = st.sampled_from(["a.png", "b.png", "c/a.png", "c/d.png", "e'%_.png", "c/é.png"])
CONTENTS = st.sampled_from([*PICTURES, BROKEN])


class Folder(RuleBasedStateMachine):
    """A folder, the dictionary that it ought to be, and what was indexed of it when."""

    def __init__(self) -> None:
        super().__init__()
        self.top = Path(tempfile.mkdtemp())
        self.photos, self.at = self.top / "photos", self.top / "at"
        self.photos.mkdir()
        self.files: dict[str, bytes] = {}
        self.indexed: dict[str, bytes] = {}
        self.model = Instant()
        self.clock = LONG_AGO

    def teardown(self) -> None:
        shutil.rmtree(self.top)

    @rule(name=NAMES, data=CONTENTS)
    def write(self, name: str, data: bytes) -> None:
        self.clock += 1
        put(self.photos / name, data, self.clock)
        self.files[name] = data

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        if name in self.files:
            self.clock += 1
            os.utime(self.photos / name, ns=(self.clock, self.clock))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.files.pop(name, None) is not None:
            (self.photos / name).unlink()

    @rule(name=NAMES, to=NAMES)
    def move(self, name: str, to: str) -> None:
        if name in self.files and name != to:
            (self.photos / to).parent.mkdir(exist_ok=True)
            (self.photos / name).replace(self.photos / to)
            self.files[to] = self.files.pop(name)

    @rule(name=NAMES, to=NAMES)
    def copy(self, name: str, to: str) -> None:
        if name in self.files and name != to:
            self.write(to, self.files[name])

    @rule(prune=st.booleans())
    def bring_up_to_date(self, prune: bool) -> None:
        encoded = self.model.encoded
        known = {data for data in self.indexed.values() if data != BROKEN}
        report = index(self.photos, at=self.at, model=self.model, prune=prune)
        kept = not self.files and self.indexed and not prune
        assert bool(report.skipped) == bool(kept)
        if kept:
            assert report.deleted == 0
            return
        before, now = self.indexed, self.files
        is_new = {data for data in now.values() if data != BROKEN} - known
        assert report.encoded == len(is_new)
        if before:  # else one more was encoded to see the model's shape
            assert self.model.encoded - encoded == len(is_new)
        assert len(report.broken) == sum(data == BROKEN for data in now.values())
        assert report.new + report.changed + report.moved + report.unchanged + len(report.broken) == len(now)
        assert report.deleted + report.moved == len(before.keys() - now.keys())
        same = sum(now[name] == data for name, data in before.items() if name in now and data != BROKEN)
        assert report.unchanged == same
        sound = [data for data in now.values() if data != BROKEN]
        assert report.duplicates == len(sound) - len(set(sound))
        self.indexed = dict(now)

    @invariant()
    def collection_is_the_folder_as_it_was_indexed(self) -> None:
        if self.indexed:
            expected = {name: digest(data) for name, data in self.indexed.items() if data != BROKEN}
            assert contents(self.at) == expected


TestFolder = Folder.TestCase
TestFolder.settings = settings(
    max_examples=int(os.environ.get("SIGHTLINE_EXAMPLES", "25")),
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)
