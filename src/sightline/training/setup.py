"""Setting up a run: records, model, tokenizer and losses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

from sightline import settings
from sightline.bundle.layout import CHECKPOINT_FILE, HUB_PREFIX, MODULES_FILE, OPEN_CLIP_FILE, PUBLISHED_FILE
from sightline.bundle.model import Ability
from sightline.bundle.tokenizer import Tokenizer
from sightline.close_names import did_you_mean
from sightline.datasets import Record, captions_in_any, read_each, refuse
from sightline.datasets.wordnet import WordNet
from sightline.errors import DataError, MediaError, RecipeError
from sightline.evaluation.test_set import Questions
from sightline.losses import LOSSES, Loss
from sightline.media import ImageInput, to_input
from sightline.models import DualStreamConfig, checkpoint
from sightline.models.pretrained_towers import TwoTowers
from sightline.models.retriever import Retriever
from sightline.models.torch_model import read
from sightline.plugins import find, import_modules
from sightline.registry.loader import locate
from sightline.training.data_tables import SourceRecipe, ValidationSetRecipe
from sightline.training.recipe import Recipe
from sightline.training.vocabulary import learn_tokenizer
from sightline.training.weight_average import blend

_OF_ANY_LOSS = ("loss", "weight", "begin", "end", "sources")


def training_records(recipe: Recipe) -> list[list[Record]]:
    """Read the captioned images of each training source, up to the recipe's limit."""
    sources = [
        [one for one in _train_split(source.train) if one.captions and one.label not in source.skip_labels]
        for source in recipe.data.mixture
    ]
    _check_languages(recipe, [record for records in sources for record in records])
    mixture = zip(recipe.data.mixture, sources, strict=True)
    return [_captioned(source, _limited(source, records, recipe)) for source, records in mixture]


def _captioned(source: SourceRecipe, records: list[Record]) -> list[Record]:
    """Add captions, made from labels by a source's prompts and WordNet, to those in each record's first language."""
    if (source.prompts or source.wordnet) and not any(record.label for record in records):
        key = f"data.sources.{source.name}"
        raise RecipeError(f"{key}: prompts and wordnet need records with labels, but none has one")
    return list(map(captioner(source), records))


def captioner(source: SourceRecipe) -> Callable[[Record], Record]:
    """Return a function that adds captions to a record of `source`, made from the record's label."""
    if not source.prompts and not source.wordnet:
        return lambda record: record
    wordnet = WordNet(source.wordnet) if source.wordnet else None
    return lambda record: _with_captions(record, source.prompts, wordnet)


def _with_captions(record: Record, prompts: Sequence[str], wordnet: WordNet | None) -> Record:
    if not record.label:
        return record
    more = [prompt.format(record.label) for prompt in prompts]
    if wordnet is not None:
        more += wordnet.captions(record.label)
    lang, captions = next(iter(record.captions.items()))
    return replace(record, captions={**record.captions, lang: tuple(dict.fromkeys([*captions, *more]))})


def _limited(source: SourceRecipe, records: list[Record], recipe: Recipe) -> list[Record]:
    if not source.limit:
        return records
    if source.limit > len(records):
        key = f"data.sources.{source.name}.limit" if recipe.data.sources else "data.limit"
        raise RecipeError(f"{key} is {source.limit}, but there are only {len(records)} captioned images")
    order = np.random.default_rng(recipe.seed).permutation(len(records))
    return [records[i] for i in order[: source.limit]]


def _check_languages(recipe: Recipe, records: Sequence[Record]) -> None:
    """Reject a language without any training caption."""
    found = {lang for record in records for lang, captions in record.captions.items() if captions}
    lacking = [lang for lang in recipe.data.languages if lang not in found]
    if found and lacking:
        raise RecipeError(
            f"data.lang: no training caption is in {' or '.join(lacking)}",
            f"Choose from the languages in the data: {', '.join(sorted(found))}.",
        )


def validation_records(recipe: Recipe) -> dict[str, list[Record]]:
    """Read the captioned images of each validation set, by name, up to its limit."""
    return {one.name: _spaced(one, _val_split(one.data)) for one in recipe.data.validation_sets}


def _spaced(one: ValidationSetRecipe, records: list[Record]) -> list[Record]:
    if one.limit > len(records):
        raise RecipeError(f"data.val.{one.name}.limit is {one.limit}, but there are only {len(records)} images")
    return [records[i * len(records) // one.limit] for i in range(one.limit)] if one.limit else records


def check_validation_records(recipe: Recipe, records: Sequence[Record], reads: ImageInput) -> None:
    """Reject records without captions in a language of the run, and sets without any image that the model can read.

    Validation would fail too, but only hours later. Individual unreadable images count as missed.
    """
    several = not isinstance(recipe.data.lang, str)
    try:
        for lang in recipe.data.languages:
            Questions.of(records, lang, skip_missing_language=several)
    except DataError as error:
        raise RecipeError(f"data.val: {error.what}", error.way_out) from error
    _check_readable(records, reads)


def _check_readable(records: Sequence[Record], reads: ImageInput) -> None:
    """Open images until one is readable."""
    reason: MediaError | None = None
    for record in records:
        try:
            to_input(record.image, reads)
        except MediaError as error:
            reason = reason or error
        else:
            return
    if reason is not None:
        raise RecipeError(f"data.val: none of {len(records)} images can be read: {reason.what}", reason.way_out)


def _train_split(paths: Sequence[str]) -> list[Record]:
    """Read data sets to train on; of one with named splits, only the train split, and none but that."""
    found: list[Record] = []
    for path, records in zip(paths, read_each(paths, on_problem=refuse), strict=True):
        chosen = [one for one in records if one.split == "train"] or [one for one in records if one.split is None]
        if not chosen:
            splits = ", ".join(sorted({str(record.split) for record in records}))
            raise RecipeError(
                f"data.train: {path} has no train split, only {splits}",
                "Use other data. To train on these images nevertheless, change the split, or the name of the file.",
            )
        found += chosen
    return found


def _val_split(paths: Sequence[str]) -> list[Record]:
    """Read data sets to validate on; of one with a val split, only that; one with several others is refused."""
    found: list[Record] = []
    for path, records in zip(paths, read_each(paths, on_problem=refuse), strict=True):
        chosen = [one for one in records if one.split == "val"] or records
        if len(splits := {str(one.split) for one in chosen}) > 1:
            raise RecipeError(
                f"data.val: {path} has no val split, only {', '.join(sorted(splits))}",
                "Name the split to validate on val, or use other data.",
            )
        found += chosen
    return found


def make_model(
    recipe: Recipe, saved: Path | None, records: Sequence[Record]
) -> tuple[checkpoint.AnyRetriever, Tokenizer]:
    """Load the model of a resumed run or of the recipe's `start` checkpoint, or make a new one.

    A new text encoder with random weights gets a tokenizer learned from the captions.
    """
    import_modules([*recipe.imports, *_own_encoders(recipe)])
    if saved is not None:
        return checkpoint.load(saved)
    if recipe.start:
        model, tokenizer = _started(recipe)
        if recipe.blend is not None:
            blend(model, recipe.blend.part, recipe.blend.source, recipe.blend.share)
        return model, tokenizer
    config = recipe.model_config()
    text = config.text if isinstance(config, DualStreamConfig) else config.transformer
    length = config.text_input.max_length
    if text.source:
        return checkpoint.build(config), checkpoint.tokenizer_of(text, length)
    captions = (caption for record in records for caption in captions_in_any(record, recipe.data.lang))
    return checkpoint.build(config), learn_tokenizer(captions, int(text.config["vocab_size"]), length)


def _own_encoders(recipe: Recipe) -> list[str]:
    """Return the Python paths of a recipe's custom encoders, which a resumed run must import as well."""
    towers = [part.get("config") for part in recipe.model.values() if isinstance(part, Mapping)]
    kinds = [str(config.get("model_type")) for config in towers if isinstance(config, Mapping)]
    return [kind for kind in kinds if ":" in kind]


def _started(recipe: Recipe) -> tuple[checkpoint.AnyRetriever, Tokenizer]:
    """Load the checkpoint or the published model that a recipe starts from."""
    folder, add = Path(recipe.start), recipe.model.get("add")
    published = (PUBLISHED_FILE, OPEN_CLIP_FILE, MODULES_FILE)
    if recipe.start.startswith(HUB_PREFIX):
        folder = locate(recipe.start)
    elif (folder / CHECKPOINT_FILE).is_file() or not any((folder / name).is_file() for name in published):
        return checkpoint.load(folder, add)
    if add:
        raise RecipeError("model.add: nothing can be added to a published model", "Remove model.add.")
    model, tokenizer = read(locate(folder))
    if not isinstance(model, checkpoint.AnyRetriever):
        raise RecipeError(
            f"model.start: {recipe.start} cannot be trained further",
            "Use a CLIP, a SigLIP, or a pair of encoders trained together.",
        )
    if isinstance(model, TwoTowers):
        model.trained = model.initially_trained
    return model, tokenizer


def _check_fits(name: str, loss: Loss, model: Retriever) -> None:
    """Reject a loss that needs more than embeddings if the model is a published one, which has nothing else."""
    if isinstance(model, TwoTowers) and (loss.needs != {"embedding"} or loss.trains_matcher or loss.needs_inputs):
        raise RecipeError(
            f"losses.{name}: a published model has only embeddings, but this loss trains something else",
            'Use contrastive, triplet or distill with on = "embedding".',
        )


def make_losses(recipe: Recipe, model: Retriever | None = None) -> nn.ModuleDict:
    """Make the losses of a recipe, by their names in it, and attach them to the model."""
    made = nn.ModuleDict()
    for name, terms in recipe.losses.items():
        kind = terms.get("loss")
        chosen = {key: value for key, value in terms.items() if key not in _OF_ANY_LOSS}
        loss = settings.call(_loss_class(name, kind), chosen, f"losses.{name}", RecipeError)
        if model is not None:
            _check_fits(name, loss, model)
            loss.fit(model)
        made[name] = loss
    if model is not None:
        _record_trained(model, _weighted(recipe, made), recipe)
    _check_teacher(recipe, [name for name, loss in made.items() if loss.needs_teacher])
    return made


def _loss_class(name: str, kind: object) -> type[Loss]:
    """Return the class of a loss: one of `LOSSES`, or your own by its Python path, `my_module:MyLoss`."""
    if isinstance(kind, str) and kind in LOSSES:
        return LOSSES[kind]
    if not isinstance(kind, str) or ":" not in kind:
        raise RecipeError(f"losses.{name}.loss: {kind!r} is not a loss", did_you_mean(str(kind), LOSSES))
    found = find(kind)
    if not isinstance(found, type) or not issubclass(found, Loss):
        raise RecipeError(f"losses.{name}.loss: {kind} is not a subclass of sightline.losses.Loss")
    return found


def _record_trained(model: Retriever, losses: Sequence[Loss], recipe: Recipe) -> None:
    """Record the abilities of the model after the run: those that it starts with, and those that losses train."""
    if model.trained is None and recipe.start:
        return  # a checkpoint of an older version, which does not record what was trained
    before = model.initially_trained if model.trained is None else model.trained
    model.trained = before.union(*(loss.trains for loss in losses))


def trained_by(recipe: Recipe) -> frozenset[Ability]:
    """Return the abilities that the losses of a recipe train."""
    return frozenset().union(*(loss.trains for loss in _weighted(recipe, make_losses(recipe))))


def _weighted(recipe: Recipe, losses: nn.ModuleDict) -> list[Loss]:
    """Return the losses whose weight is not 0."""
    return [loss for name, loss in losses.items() if recipe.weights[name] and isinstance(loss, Loss)]


def _check_teacher(recipe: Recipe, asking: Sequence[str]) -> None:
    """Reject losses without the teacher they need, and a teacher that no loss uses."""
    if asking and recipe.teacher is None:
        raise RecipeError(
            f"losses.{asking[0]}: {recipe.losses[asking[0]]['loss']} learns from a teacher, but there is none",
            'Add teacher = { model = "runs/…/best" }.',
        )
    if recipe.teacher is not None and not asking:
        raise RecipeError(
            "teacher: no loss uses the teacher", 'Add a loss with loss = "distill", or remove the teacher.'
        )
