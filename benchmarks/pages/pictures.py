"""Write the results of benchmarks/ocr.py to docs/pictures.md, between `<!-- ocr -->` and `<!-- /ocr -->`.

python -m benchmarks.pages.pictures
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.markdown import replace_block, sources, table
from benchmarks.provenance import RESULTS, ROOT, read_result

PAGE = ROOT / "docs" / "pictures.md"


def page(text: str, result: Mapping[str, Any]) -> str:
    """The page with the documents and photos that were found."""
    documents, photos, reading = result["documents"], result["photos"], result["reading"]
    rows = [
        [name, f"{found} of {documents['count']}", f"{photos['found_first'].get(name, '')}".strip() or "–"]
        for name, found in documents["found_first"].items()
    ]
    heads = ["ranked by", "documents", f"photos, of {photos['count']}"]
    before, after = result["search_cpu_ms"]["before_text"], result["search_cpu_ms"]["with_text"]
    told = (
        f"{documents['count']} made documents (receipts, code, charts, signs on photos, letters; turned, noisy, "
        f"compressed) and {photos['count']} photos are searched: each document by five of its words, each photo by its "
        f"name. Found first:\n\n"
        f"{table(heads, rows)}\n\n"
        f"Reading took {reading['per_picture_seconds']:.1f} s for a picture, on a shared machine of "
        f"{result['machine']['cores']} small cores. A search by embedding took {before:.0f} ms of CPU time before "
        f"the text was read, and {after:.0f} ms with it."
    )
    return replace_block(text, "ocr", f"{told}\n\n{sources([result], 'ocr.json')}")


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page(text, read_result(RESULTS / "ocr.json")), encoding="utf-8")


if __name__ == "__main__":
    main()
