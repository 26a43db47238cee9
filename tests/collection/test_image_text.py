"""Text in pictures: read after indexing, kept beside the catalog, and found together with what pictures show."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sightline
from documents import Document, make_documents
from sightline.cli import app
from sightline.collection.image_text.database import TextDatabase, TextRead, text_path
from sightline.collection.image_text.reading import pending, read_text_in_images
from sightline.collection.image_text.search import merged
from sightline.collection.image_text.words import contains, marked, match, query_words, split_quotes
from sightline.demo import PICTURES
from sightline.errors import CollectionError, MediaError, SightlineError
from sightline.files import FolderLock
from sightline.media import ocr
from sightline.media.decoder import DecoderProcess
from sightline.media.ocr import TextLine
from sightline.retrieval.results import Hit

BOX = ((0.1, 0.2), (0.5, 0.2), (0.5, 0.3), (0.1, 0.3))
pytest.importorskip("rapidocr_onnxruntime", reason="the extra ocr is not installed")


def lines(*texts: str) -> list[TextLine]:
    return [TextLine(text, BOX) for text in texts]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    """Code, a chart and a sign: documents of few lines, which are read quickly."""
    return make_documents(5, seed=1)[1:4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path, documents: list[Document]) -> Path:
    """The documents and a photo, indexed, their text read in two runs."""
    folder = tmp_path_factory.mktemp("documents")
    for document in documents:
        document.image.save(folder / f"{document.kind}.jpg", quality=document.quality)
    (folder / "dog.jpg").write_bytes((PICTURES / "dog.jpg").read_bytes())
    sightline.index(folder, model=tiny_bundle)
    at = folder / ".sightline"
    assert pending(at) == 4

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_text_in_images(at, stop)
    assert pending(at) == 1
    report = read_text_in_images(at)
    assert (report.read, report.failed, pending(at)) == (1, [], 0)
    assert read_text_in_images(at).read == 0
    return folder


def test_documents_are_found_first_by_five_of_their_words(folder: Path, documents: list[Document]) -> None:
    with sightline.open(folder) as collection:
        for document in documents:
            hit = collection.search(document.query)[0]
            assert hit.path == f"{document.kind}.jpg"
            assert (hit.stage, hit.relevance) == ("text", None)
            assert hit.quote
        together = collection.search_together([document.query for document in documents])
        assert [result[0].path for result in together] == [f"{document.kind}.jpg" for document in documents]
        assert len(collection.search(documents[0].query, duplicates="show")) == 4  # what looks like it is still there


def test_quotes_search_the_text_alone(folder: Path, documents: list[Document]) -> None:
    sign = documents[2].text.splitlines()[0]
    with sightline.open(folder) as collection:
        assert [hit.path for hit in collection.search(f'"{sign}"')] == ["sign.jpg"]
        assert [hit.path for hit in collection.search(f'a dog "{sign}"')] == ["sign.jpg"]
        nothing = collection.search('"no such words anywhere"')
        assert len(nothing) == 0
        assert "No image contains the text" in (nothing.notice or "")
        assert len(collection.search(f'"{sign}"', where="name = 'dog.jpg'")) == 0


def test_results_come_in_pages_and_filtered(folder: Path, documents: list[Document]) -> None:
    with sightline.open(folder) as collection:
        everything = [hit.id for hit in collection.search(documents[1].query)]
        pages = [hit.id for start in (0, 2) for hit in collection.search(documents[1].query, k=2, start=start)]
        assert pages == everything
        left = collection.search(documents[1].query, where="name != 'chart.jpg'")
        assert "chart.jpg" not in [hit.path for hit in left]


def test_words_are_marked_where_they_stand(folder: Path, documents: list[Document]) -> None:
    word = documents[2].text.split()[0]
    with sightline.open(folder) as collection:
        found = collection.search(f'"{word}"')[0]
        shown = [line for line in collection.text_in(found.id, word) if line.marks]
        ((left, top), _, (right, bottom), _) = shown[0].marks[0]
        assert 0.1 < left < right < 0.7
        assert 0.2 < top < bottom < 0.7
        assert not any(line.marks for line in collection.text_in(found.id))


def test_text_of_deleted_images_is_removed(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "dog.jpg").write_bytes((PICTURES / "dog.jpg").read_bytes())
    at = sightline.index(tmp_path, model=tiny_bundle).at
    database = TextDatabase.open(at, write=True)
    assert database
    with sightline.open(tmp_path) as collection:
        (own,) = collection.catalog.hashes()
    database.add([TextRead(own, problem="too slow"), TextRead(b"x" * 32, lines("gone"))])
    assert database.counts() == (2, 1, 1)
    database.close()
    assert read_text_in_images(at).read == 0
    assert read_text_in_images(at, retry=True).read == 1
    database = TextDatabase.open(at, write=True)
    assert database
    assert database.counts() == (1, 0, 0)
    database.remove([own])
    database.add([TextRead(own, lines("Beware of the dog")), TextRead(b"x" * 32, lines("gone"))])
    database.close()
    read_text_in_images(at)
    with sightline.open(tmp_path) as collection:
        assert collection.image_text
        assert collection.image_text.hashes() == {own}
        assert collection.search('"beware"')[0].quote == "Beware of the dog"


def test_without_text_searches_are_as_before(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "dog.jpg").write_bytes((PICTURES / "dog.jpg").read_bytes())
    sightline.index(tmp_path, model=tiny_bundle)
    with sightline.open(tmp_path) as collection:
        assert collection.image_text is None
        assert "text" not in collection.search("a dog").took_ms
        found = collection.search('"a dog"')
        assert len(found) == 1
        assert "was not read" in (found.notice or "")
        assert collection.text_in(found[0].id) == []


def test_a_damaged_file_is_told_of_and_replaced_when_text_is_read(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "dog.jpg").write_bytes((PICTURES / "dog.jpg").read_bytes())
    at = sightline.index(tmp_path, model=tiny_bundle).at
    path = text_path(at)
    path.parent.mkdir()
    path.write_bytes(b"SQLite format 3\0" + b"?" * 5000)
    with sightline.open(tmp_path) as collection, pytest.raises(CollectionError, match="cannot be used"):
        collection.search("a dog")
    database = TextDatabase.open(at, write=True)
    assert database
    assert database.counts() == (0, 0, 0)
    database.close()


def test_links_are_not_followed(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "dog.jpg").write_bytes((PICTURES / "dog.jpg").read_bytes())
    at = sightline.index(tmp_path / "photos", model=tiny_bundle).at
    outside = tmp_path / "outside"
    outside.mkdir()
    (at / "text").symlink_to(outside)
    for action in (read_text_in_images, TextDatabase.open):
        with pytest.raises(CollectionError, match="link"):
            action(at)
    assert list(outside.iterdir()) == []
    (at / "text").unlink()
    (at / "text").mkdir()
    (at / "text" / "text.db").symlink_to(outside / "new.db")
    with pytest.raises(CollectionError, match="link"):
        read_text_in_images(at)
    assert list(outside.iterdir()) == []


def test_a_collection_that_cannot_be_written_is_told_of(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "dog.jpg").write_bytes((PICTURES / "dog.jpg").read_bytes())
    at = sightline.index(tmp_path, model=tiny_bundle).at
    (at / "text").write_text("in the way of the folder")  # root may write everywhere, so no permission is missing
    with pytest.raises(CollectionError, match="text: cannot be written"):
        read_text_in_images(at)


def test_rows_that_someone_else_wrote_do_no_harm(tmp_path: Path, tiny_bundle: Path) -> None:
    (tmp_path / "dog.jpg").write_bytes((PICTURES / "dog.jpg").read_bytes())
    at = sightline.index(tmp_path, model=tiny_bundle).at
    database = TextDatabase.open(at, write=True)
    assert database
    with sightline.open(tmp_path) as collection:
        (own,) = collection.catalog.hashes()
    database.add([TextRead(own, lines("parking"))])
    database.close()
    for wrong in ("[", "[" * 100_000, '[["parking", [[0, 0]]]]', '{"a": 1}', '[["parking", "xy"]]'):
        with sqlite3.connect(text_path(at)) as connection:
            connection.execute("UPDATE pictures SET lines = ?", (wrong,))
        connection.close()
        with sightline.open(tmp_path) as collection:
            assert len(collection.search("parking")) == 1
            assert collection.text_in(1, "parking") == []


def test_one_process_reads_at_a_time(folder: Path) -> None:
    lock = FolderLock(folder / ".sightline" / "text" / "lock")
    try:
        assert lock.acquire()
        with pytest.raises(CollectionError, match="another process"):
            read_text_in_images(folder / ".sightline")
    finally:
        lock.close()


def test_an_image_that_takes_too_long_ends_its_process(documents: list[Document], tmp_path: Path) -> None:
    documents[0].image.save(tmp_path / "slow.png")
    decoder = DecoderProcess()
    task = {"task": "text", "name": "slow.png", "max_pixels": 10**9, "max_bytes": 2**30, "seconds": 0.05}
    try:
        with pytest.raises(MediaError, match=r"longer than 0\.05 s"):
            decoder.request(task, (tmp_path / "slow.png").read_bytes(), 0.05)
        busy = {**task, "seconds": 60, "cpu_seconds": 0.05}
        with pytest.raises(MediaError, match="longer than"):
            decoder.request(busy, (tmp_path / "slow.png").read_bytes(), 60)
        small = {**task, "max_bytes": 1000, "seconds": 20}
        answer, _ = decoder.request(small, (tmp_path / "slow.png").read_bytes(), 20)
        assert answer["needed"] > 1000
    finally:
        decoder.close()


def test_the_command_reads_text_after_the_report_and_can_leave_it(
    tmp_path: Path, tiny_bundle: Path, documents: list[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents[2].image.save(tmp_path / "sign.jpg")
    index = ["index", str(tmp_path), "--model", str(tiny_bundle)]
    done = CliRunner().invoke(app, [*index, "--no-text"])
    assert done.exit_code == 0
    assert "Text" not in done.output
    assert not text_path(tmp_path / ".sightline").exists()
    done = CliRunner().invoke(app, [*index, "--text"])
    report, text = done.output.index("1 unchanged"), done.output.index("Text: 1 of 1 images have text; ")
    assert report < text
    word = documents[2].text.split()[0]
    found = CliRunner().invoke(app, ["search", f'"{word}"', "--at", str(tmp_path), "--model", str(tiny_bundle)])
    assert f"“{documents[2].text.splitlines()[0]}”".replace(" ", "") in found.output.replace(" ", "")
    monkeypatch.setattr(ocr, "is_installed", lambda: False)
    done = CliRunner().invoke(app, [*index, "--text"])
    assert isinstance(done.exception, SightlineError)
    assert "sightline-search[ocr]" in str(done.exception)
    assert "unchanged" not in done.output, "it says so before it indexes anything"
    assert CliRunner().invoke(app, index).exit_code == 0


def hit(id: int) -> Hit:
    return Hit(0, id, f"{id}.jpg", Path(f"{id}.jpg"), Path(), 0.5, 0.5, "embed")


def test_one_word_alternates_and_many_words_decide() -> None:
    looks = [hit(id) for id in (1, 2, 3)]
    text = [hit(id) for id in (11, 12)]
    assert [one.id for one in merged(looks, text, [1, 1])] == [1, 11, 2, 12, 3]
    assert [one.id for one in merged(looks, text, [5, 4])] == [11, 12, 1, 2, 3]
    assert [one.id for one in merged(looks, [hit(11), hit(1)], [5, 4])] == [11, 1, 2, 3]
    both = merged(looks, [hit(3)], [1])
    assert [one.id for one in both] == [1, 3, 2]
    assert [one.rank for one in both] == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "text", "least", "most"),
    [
        ("total amount", "Total amount 12.50", 1, 1),
        ("total amount", "Totalamount12.50", 0.8, 0.95),  # recognised text lacks spaces
        ("cat", "education", 0, 0.3),
        ("crème brûlée", "CREME BRULEE", 1, 1),
        ("dog on a beach", "Beach Road", 0.5, 0.7),
        ("发票", "电子发票号码", 1, 1),
        ("dog", "horse", 0, 0),
    ],
)
def test_words_are_found_in_recognised_text(query: str, text: str, least: float, most: float) -> None:
    assert least <= match(query_words(query), lines(text)).coverage <= most


def test_short_words_of_other_scripts_are_found(tmp_path: Path) -> None:
    database = TextDatabase.open(tmp_path, write=True)
    assert database
    database.add([TextRead(b"1", lines("电子发票号码")), TextRead(b"2", lines("no entry"))])
    assert [hash for hash, _ in database.matching(["发票"])] == [b"1"]
    assert [hash for hash, _ in database.matching(['en"try', "entry"])] == [b"2"]
    assert database.matching(["entry", "gates"], every=True) == []
    assert database.matching([]) == []
    database.close()


@pytest.mark.parametrize("quoted", ["no", "ＮＯ", "nó"])
def test_a_short_quote_is_found_in_any_letters(quoted: str, tmp_path: Path, tiny_bundle: Path) -> None:
    shutil.copy(PICTURES / "dog.jpg", tmp_path)
    at = sightline.index(tmp_path, model=tiny_bundle).at
    with sightline.open(at) as collection:
        database = TextDatabase.open(at, write=True)
        assert database
        database.add([TextRead(collection.catalog.hash_of(1) or b"", lines("No entry"))])
        database.close()
        assert [hit.quote for hit in collection.search(f'"{quoted}"')] == ["No entry"]


def test_quotes_are_taken_apart_and_compared_without_spaces() -> None:
    assert split_quotes('say "hello world" twice') == ("say twice", ("hello world",))
    assert split_quotes('an open " quote') == ('an open " quote', ())
    assert contains("hello  World", lines("Say: HELLO", "world!"))
    assert not contains("hello moon", lines("Say: HELLO", "world!"))


def test_marks_are_parts_of_their_line() -> None:
    ((text, corners, marks),) = marked(["road"], [], lines("Main Road"))
    assert (text, corners) == ("Main Road", BOX)
    ((left, top), (right, _), _, _) = marks[0]
    assert left == pytest.approx(0.1 + 0.4 * 5 / 9, abs=0.001)
    assert (right, top) == (0.5, 0.2)
