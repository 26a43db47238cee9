"""Build the parallel text that `bundles.languages` learns from, and the texts held out from it.

    pip install fugashi unidic-lite
    python -m bundles.text --bundle bundles/default --from DIR --out TEXT

Downloads are kept in DIR: Debian packages (with apt-get and dpkg-deb), GitHub archives, and Tatoeba's files. Files that
are already there are not downloaded: DIR/debian/usr/share/…, DIR/github/NAME/…, DIR/tatoeba/LANGUAGE.txt, with the
names in `bundles/text/sources.py`. Needs SIGHTLINE_DATA, Apertium (apertium-spa-ita, apertium-es-pt) for Italian and
Portuguese captions, and rsvg-convert for the images of stamps.
"""

import argparse
import gzip
import itertools
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from bundles.text.captions import Photos, flickr8k, image_name, multi30k, own_captions
from bundles.text.held_out import HeldOut, form, hold_nouns, hold_stamps, hold_xtd10, is_held_noun, stamps
from bundles.text.japanese import edict, respelt
from bundles.text.sources import THREE_LETTERS, Line, fetch, records, rows, tidy
from bundles.text.words import WordNet, chosen, cldr, freedict, omw, right_script, variants
from sightline.bundle.spec import read_spec
from sightline.bundle.words import Words


def dictionaries(folder: Path, wordnet: WordNet, useful: Callable[[str], bool]) -> Iterator[Line]:
    """Yield the words of all dictionaries whose English translation is useful."""
    debian, github = folder / "debian", folder / "github"
    sources = (freedict(debian, wordnet), edict(debian, wordnet), omw(github, wordnet), cldr(debian))
    for line in itertools.chain(*sources):
        if useful(line.en) and len(line.text) <= 60:
            for one in variants(line, wordnet):
                if right_script(one.text, one.lang):
                    yield from respelt(one) if one.source != "edict" and wordnet.is_thing(one.en) else (one,)


def sentences(folder: Path) -> Iterator[Line]:
    """Yield the sentences of Tatoeba and of Tux Paint's stamps."""
    for path in sorted((folder / "tatoeba").glob("*.txt")):
        for cells in (row.rstrip("\r").split("\t") for row in rows(path)):
            if len(cells) > 1:
                yield from respelt(Line(tidy(cells[0]), THREE_LETTERS[path.stem], tidy(cells[1]), "tatoeba"))
    for _, _, en, texts in stamps(folder / "debian"):
        yield from (Line(en, lang, text, "tuxpaint") for lang, some in texts.items() for text in some)


def captions(github: Path, photos: Photos) -> Iterator[Line]:
    """Return the captions of all sources."""
    translations = list(multi30k(github, photos))
    return itertools.chain(translations, own_captions(github, photos), flickr8k(photos, translations))


def with_photos(lines: Iterable[Line], data: Path) -> Iterator[Line]:
    """Yield the lines; a word that is the label of images gets one of them."""
    images = defaultdict(list)
    for key, facts in records(data, "names-train.tar"):
        images[form(facts["label"])].append(image_name(key))
    choose = random.Random(0).choice
    for line in lines:
        yield line._replace(image=choose(some)) if (some := images.get(form(line.en))) else line


def write(lines: Iterable[Line], out: Path, held: HeldOut) -> Counter[tuple[str, str]]:
    """Write each line once, unless it is held out, to its source's file; returns the counts by source and language."""
    files, seen, counts = dict[str, list[str]](), set[tuple[str, ...]](), Counter[tuple[str, str]]()
    for line in lines:
        if line.en and line.text and line[:4] not in seen and not held.has(line):
            seen.add(line[:4])
            counts[line.source, line.lang] += 1
            files.setdefault(line.source, []).append(line.to_json() + "\n")
    for name, some in files.items():
        with gzip.open(out / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(some)
    return counts


def main(argv: Sequence[str] | None = None) -> None:
    """Write all files of the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, required=True, help="its words choose those of the dictionaries")
    parser.add_argument("--from", dest="folder", type=Path, required=True, help="folder of fetched files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("SIGHTLINE_DATA", ".")))
    args = parser.parse_args(argv)
    fetch(args.folder)
    args.out.mkdir(parents=True, exist_ok=True)
    words = Words(read_spec(args.bundle).words.split())
    wordnet = WordNet(args.folder / "debian/usr/share/wordnet")
    labels = {form(facts["label"]) for _, facts in records(args.data, "names-val.tar")}
    labels = {label for label in labels if label in wordnet and is_held_noun(label)}
    photos = Photos(args.data)
    held = HeldOut(photos.held)
    hold_stamps(args.folder / "debian", args.out, held)
    hold_xtd10(args.folder / "github", args.out, held)
    useful = cache(lambda en: words.familiarity(en) > 0 or form(en) in labels)
    dictionary = list(dictionaries(args.folder, wordnet, useful))
    hold_nouns(dictionary, labels, args.out, held)
    kept = chosen((line for line in dictionary if not held.has(line)), wordnet, words.familiarity)
    texts = (with_photos(kept, args.data), sentences(args.folder), captions(args.folder / "github", photos))
    counts = write(itertools.chain(*texts), args.out, held)
    for source in dict.fromkeys(source for source, _ in counts):
        some = {lang: count for (name, lang), count in counts.items() if name == source}
        print(f"{source}: {sum(some.values())} lines", some)


if __name__ == "__main__":
    main()
