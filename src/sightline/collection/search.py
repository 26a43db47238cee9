"""Search a collection by what images look like, by the text in them, or by both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.bundle.model import Model
from sightline.collection.catalog.database import Catalog
from sightline.collection.catalog.hits import ItemCache, hits_of
from sightline.collection.catalog.where import compile_where
from sightline.collection.image_text.database import TextDatabase
from sightline.collection.image_text.search import NOT_READ, TextResults
from sightline.collection.image_text.words import split_quotes
from sightline.collection.query_text.spelling import Wording, check_wording
from sightline.languages.letters import plain_letters
from sightline.retrieval.cascade import Cascade, Ranking
from sightline.retrieval.costs import search_stopwatch
from sightline.retrieval.duplicates import Duplicates
from sightline.retrieval.first_stage import Scope
from sightline.retrieval.language import in_language
from sightline.retrieval.options import SearchOptions
from sightline.retrieval.query import ItemKind, Query
from sightline.retrieval.results import Hit, SearchResult
from sightline.stores.base import Ids


@dataclass(frozen=True, slots=True)
class CollectionSearch:
    """Searches one catalog and its store.

    cascade: opens the model; not called by a search that looks only for text in images, which needs no model.
    text: the text in the images; None if it was not read.
    """

    catalog: Catalog
    kind: ItemKind
    cascade: Callable[[], Cascade]
    text: TextDatabase | None

    def run(self, options: SearchOptions) -> SearchResult:
        """Search by what images look like and, if the text in them was read, by that text."""
        words, quoted = split_quotes(options.text or "")
        if self.text is None or not options.text:
            result = self.by_looks(options)
            return replace(result, notice=NOT_READ) if quoted and self.kind == "images" else result
        where = options.where
        allowed = None if where is None else self.catalog.ids_where(where)
        found = TextResults.find(self.text, self.catalog, words, quoted, allowed, where)
        if quoted and not words and options.image is None:
            return found.alone(options)
        chosen = replace(options, text=words or None, k=options.start + options.k, start=0)
        return found.merged_with(self.by_looks(chosen, found.ids if quoted else None), options)

    def by_looks(self, options: SearchOptions, among: Ids | None = None) -> SearchResult:
        """Search by what images look like, ignoring the text in them. among: the only ids that may be found."""
        asked, where, options = options.query, options.where, self._readable(options)
        text = None if asked.text is None else options.text
        condition = None if where is None else compile_where(where)
        cascade, watch = self.cascade(), search_stopwatch(options.budget_ms)
        model, lang = in_language(cascade.model, options.lang, text, *options.unwanted)
        start, options = options.start, replace(options, k=options.start + options.k, start=0)
        cache = ItemCache(self.catalog, condition)
        with watch("retrieve"):
            store, allowed = cascade.store, among
            if among is None and where is not None:
                store, allowed = self.catalog.narrowed(store, where)
        scope = self._scope(cache, text, options.duplicates, allowed)
        ranking = replace(cascade.reading(model), store=store).run(options, scope, watch=watch)
        wording = self._wording(text, model, lang)
        if asked.image is not None:  # results are not arbitrary, whatever the text is
            wording = Wording(did_you_mean=wording.did_you_mean)
        kept = _at_least(options.min_relevance, ranking, wording)
        hits = hits_of(kept, options.k, cache.items)[start:]
        return _result(asked, hits, ranking, wording, lang, where)

    def together(self, options: Sequence[SearchOptions]) -> list[SearchResult]:
        """Search for several texts with the same `k`, `min_relevance` and `duplicates` at once, without reranking."""
        if not options:
            return []
        first, texts = options[0], [self._readable(one).text or "" for one in options]
        if self.text is not None and any(split_quotes(text)[1] for text in texts):
            return [self.run(replace(one, late=0, rerank=0)) for one in options]
        cascade, cache = self.cascade(), ItemCache(self.catalog)
        read = [in_language(cascade.model, one.lang, text) for one, text in zip(options, texts, strict=True)]
        rankings: dict[int, Ranking] = {}
        for model in dict.fromkeys(model for model, _ in read):  # in one batch, unless languages are mixed
            places = [place for place, one in enumerate(read) if one[0] is model]
            scope, own = self._scope(cache, texts[0], first.duplicates), [texts[place] for place in places]
            ranked = cascade.reading(model).run_together(own, first.k, scope, first.min_relevance)
            rankings |= dict(zip(places, ranked, strict=True))
        results = []
        for place, (one, (model, lang)) in enumerate(zip(options, read, strict=True)):
            ranking, wording = rankings[place], self._wording(texts[place], model, lang)
            hits = hits_of(_at_least(one.min_relevance, ranking, wording), one.k, cache.items)
            result = _result(one.query, hits, ranking, wording, lang)
            if self.text is not None:
                result = TextResults.find(self.text, self.catalog, one.text or "").merged_with(result, one)
            results.append(result)
        return results

    def _readable(self, options: SearchOptions) -> SearchOptions:
        """Return the options with plain letters; for a collection of texts, whose letters were kept, as they are."""
        if self.kind != "images":
            return options
        text = None if options.text is None else plain_letters(options.text)
        return replace(options, text=text, not_=tuple(map(plain_letters, options.unwanted)))

    def _wording(self, text: str | None, model: Model, lang: str | None) -> Wording:
        """Check the words of a query; file names are read only if the query has unknown words."""
        if text is None or self.kind != "images":
            return Wording()

        def is_whole(word: str) -> bool:
            return model.tokenizer.is_word(word)

        def knows_any(symbols: str) -> bool:
            return model.tokenizer.knows_any(symbols)

        return check_wording(text, model.languages, model.words, is_whole, self.catalog.name_words, lang, knows_any)

    def _scope(self, cache: ItemCache, text: str | None, duplicates: Duplicates, allowed: Ids | None = None) -> Scope:
        """Return the scope of a search; image searches fold duplicates and, if by text, rank blank images last."""
        if self.kind != "images":
            return Scope(allowed, cache)
        blank = None if text is None else cache.blank
        return Scope(allowed, cache, duplicates == "fold", blank, self.catalog.moments())


def _at_least(least: float | None, ranking: Ranking, wording: Wording) -> Ranking:
    """Return the candidates with at least this relevance; for a query of filler words, no relevance is stated."""
    if wording.has_content or ranking.relevances is None:
        return ranking.at_least(least)
    irrelevant = replace(ranking, relevances=np.zeros(len(ranking.candidates)))
    return replace(irrelevant.at_least(least), relevances=None)


def _result(
    query: Query,
    hits: tuple[Hit, ...],
    ranking: Ranking,
    wording: Wording,
    lang: str | None,
    where: str | None = None,
) -> SearchResult:
    return SearchResult(
        query,
        hits,
        ranking.took_ms,
        where=where,
        best_relevance=ranking.best_relevance if wording.has_content else None,
        truncated=ranking.truncated,
        line=ranking.line if wording.has_content else None,
        notice=wording.notice,
        did_you_mean=wording.did_you_mean,
        lang=lang,
        has_content=wording.has_content,
    )
