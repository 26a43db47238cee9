import json

import pytest

from sightline.datasets import read, read_all, recognise
from sightline.errors import DataError

DOG = {"captions": {"en": ["a dog"]}}


def write_jsonl(path, *names, split=None):
    lines = [json.dumps({"image": name, "caption": f"this is {name}", "split": split}) for name in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def shards(tmp_path, write_shard):
    for name in ("sea-train-000", "sea-train-001", "sea-train-010", "sea-val", "land-test"):
        write_shard(tmp_path / f"{name}.tar", [(f"{name}-a.jpg", b"A"), (f"{name}-a.json", DOG)])
    (tmp_path / "README.md").write_text("about these shards")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["land-test", "sea-train-000", "sea-train-001", "sea-train-010", "sea-val"]),
        ("sea-train-*.tar", ["sea-train-000", "sea-train-001", "sea-train-010"]),
        ("sea-train-{000..001}.tar", ["sea-train-000", "sea-train-001"]),
        ("sea-train-{001..000}.tar", ["sea-train-001", "sea-train-000"]),
        ("{sea,land}-{test,val,test}.tar", None),
        ("{land-test,sea-val}.tar", ["land-test", "sea-val"]),
        ("sea-{val,train-*}.tar", ["sea-val", "sea-train-000", "sea-train-001", "sea-train-010"]),
        ("*-[tv]*.tar", ["land-test", "sea-train-000", "sea-train-001", "sea-train-010", "sea-val"]),
        ("sea-train-{000..010}.tar", None),
    ],
)
def test_a_path_may_mean_many_shards_which_are_read_in_order(shards, pattern, names):
    if names is None:
        with pytest.raises(DataError, match="no such file"):
            read(shards / pattern)
    else:
        assert [record.key for record in read(shards / pattern)] == [f"{name}-a" for name in names]
        assert recognise(shards / pattern) == "shards"


def test_a_name_that_exists_is_no_pattern(tmp_path):
    path = write_jsonl(tmp_path / "data[1]{a,b}.jsonl", "a.jpg")
    assert [record.key for record in read(str(path))] == ["a.jpg"]


def test_a_split_lets_only_its_records_through_under_any_of_its_names(shards):
    assert [record.key for record in read(shards, split="dev")] == ["sea-val-a"]
    with pytest.raises(DataError, match=r"no records in split 'minival'; available: test, train, val"):
        list(read(shards, split="minival"))


def test_records_without_splits_say_so(tmp_path):
    with pytest.raises(DataError, match="its records name no split"):
        list(read(write_jsonl(tmp_path / "x.jsonl", "a.jpg"), split="test"))


@pytest.mark.parametrize("name", ["nowhere.jsonl", "nowhere/*.tar", "nowhere-{000..002}.tar"])
def test_a_missing_path_is_an_error_at_once(tmp_path, name):
    with pytest.raises(DataError, match="nowhere"):
        read(tmp_path / name)


def test_a_missing_folder_of_images_is_an_error_at_once(tmp_path):
    with pytest.raises(DataError, match="pictures: no such image folder"):
        read(write_jsonl(tmp_path / "x.jsonl", "a.jpg"), images=tmp_path / "pictures")


def test_a_data_set_without_records_is_an_error_when_it_ends(tmp_path, write_shard):
    (tmp_path / "x.jsonl").write_text("\n\n")
    write_shard(tmp_path / "x.tar", [])
    for name in ("x.jsonl", "x.tar"):
        records = read(tmp_path / name)
        with pytest.raises(DataError, match=r"no records"):
            next(records)


def test_a_data_set_of_broken_records_only_is_an_error(tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n{}\n")
    problems = []
    with pytest.raises(DataError, match="no records"):
        list(read(tmp_path / "x.jsonl", on_problem=problems.append))
    assert len(problems) == 2


def test_reading_is_lazy_so_a_broken_record_does_not_hide_those_before_it(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", "a.jpg", "b.jpg")
    path.write_text(path.read_text() + "\n{broken")
    records = read(path)
    assert next(records).key == "a.jpg"
    with pytest.raises(DataError, match="3: not JSON"):
        list(records)


def test_shards_that_each_count_from_zero_get_keys_of_their_own(tmp_path, write_shard):
    for name in ("a-000", "a-001"):
        write_shard(tmp_path / f"{name}.tar", [("0.jpg", b"A"), ("0.json", DOG)])
    assert [record.key for record in read(tmp_path)] == ["0", "a-001/0"]


def test_several_data_sets_are_read_one_after_the_other(tmp_path, shards):
    extra = write_jsonl(tmp_path / "more" / "extra.jsonl", "z.jpg")
    records = read_all([extra, str(shards / "sea-val.tar")])
    assert [record.key for record in records] == ["z.jpg", "sea-val-a"]
    assert [record.key for record in read_all(str(extra))] == ["z.jpg"]


def test_one_key_for_two_pictures_in_two_data_sets_is_renamed_after_its_file(tmp_path):
    paths = [write_jsonl(tmp_path / name / f"{name}.jsonl", "1.jpg", "2.jpg") for name in ("one", "two")]
    assert [record.key for record in read_all(paths)] == ["1.jpg", "2.jpg", "two/1.jpg", "two/2.jpg"]


def test_one_picture_in_two_data_sets_is_a_problem_that_names_both(tmp_path):
    paths = [write_jsonl(tmp_path / f"{name}.jsonl", "1.jpg", f"{name}.jpg", split=name) for name in ("train", "test")]
    with pytest.raises(DataError, match=r"test\.jsonl:1\.jpg: .*already used by .*1\.jpg in .*train\.jsonl"):
        read_all(paths)
    problems = []
    assert [record.key for record in read_all(paths, on_problem=problems.append)] == ["1.jpg", "train.jpg", "test.jpg"]
    assert [problem.place for problem in problems] == [f"{paths[1]}:1.jpg"]


def test_the_same_file_given_twice_is_a_problem(tmp_path):
    path = write_jsonl(tmp_path / "x.jsonl", "1.jpg")
    with pytest.raises(DataError, match="list each image once"):
        read_all([path, path])


def test_keys_do_not_depend_on_the_split_asked_for(tmp_path, write_shard):
    for name in ("a-train", "a-test"):
        write_shard(tmp_path / f"{name}.tar", [("0.jpg", b"A"), ("0.json", DOG)])
    whole = {record.split: record.key for record in read(tmp_path)}
    assert {split: next(read(tmp_path, split=split)).key for split in whole} == whole
