"""Masked words and fragments: the losses of paper 4, by its literal equations; a blank says nothing of its word."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import tiny
from losses import literal_dot as literal
from losses.batches import gradients
from losses.masked import FRAGMENTS, IMAGE_IDS, KINDS, LOSSES, TEXT_IDS, fitted, loss_of, model_of, pairs_of
from losses.masked import pictures_of as some_pictures
from losses.masked import pixels as some_pixels
from losses.masked import regions as some_regions
from losses.masked import tokens as some_tokens
from sightline.errors import ModelError
from sightline.losses import Contrastive, Inputs, Loss, MaskedFragments, MaskedWords, Pairs
from sightline.losses.masking import hide, mask_words
from sightline.models import DualStream, Regions, SingleStream, Tokens, TowerFeatures
from sightline.models.masking import Images, frozen_features, see_with_gaps
from sightline.onnx_export.exporter import export

EVERYWHERE = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in LOSSES for kind in KINDS if name in FRAGMENTS or kind == KINDS[0]]
)

FUSED = pytest.mark.parametrize(
    ("name", "kind"), [("vmlm", KINDS[0]), ("smrfr", KINDS[1]), ("smrc", KINDS[0]), ("smrc", KINDS[2])]
)


SHARE = 0.4
BLANK = -7


def masked_words(seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of each text as the model gets them, and those to predict; blanks are `BLANK`."""
    first, second = torch.rand(2, 5, 9, generator=torch.Generator().manual_seed(seed)).tolist()
    inputs, labels = [], []
    for ids, real, draws, others in zip(*(part.tolist() for part in some_tokens()), first, second, strict=True):
        words = range(1, sum(real) - 1)
        random = iter([int(others[n] * len(tiny.WORDS)) for n in words if 0.8 <= draws[n] / SHARE < 0.9])
        scaled = [draws[n] / SHARE * literal.MASK_PROBABILITY for n in words]
        given, right = literal.mask_tokens([ids[n] for n in words], scaled, BLANK, lambda random=random: next(random))
        inputs.append([ids[0], *given, ids[sum(real) - 1]])
        labels.append([-1, *right, -1])
    return inputs, labels


def hidden_fragments(seed: int, model: DualStream, share: float = 0.4) -> list[list[int]]:
    """Which fragments of each picture are hidden, one after another."""
    count = 16 if model.image_reader is None else 4
    there = torch.ones(4, count).tolist() if model.reads_pixels else some_regions().mask.tolist()
    numbers = torch.rand(4, len(there[0]), generator=torch.Generator().manual_seed(seed)).tolist()
    found = []
    for row, real in zip(numbers, there, strict=True):
        fragments = [n for n, is_real in enumerate(real) if is_real]
        found.append([n for n in fragments if row[n] < share] or [min(fragments, key=lambda n: row[n])])
    return found


def normal(vector: Tensor, norm: nn.LayerNorm | None = None) -> Tensor:
    found = (vector - vector.mean()) / (vector.var(unbiased=False) + 1e-5).sqrt()
    return found if norm is None else found * norm.weight + norm.bias


def guessed(vector: Tensor, guess: nn.Module) -> Tensor:
    dense: nn.Linear = guess.dense  # type: ignore[assignment]
    inner = dense.weight @ vector + dense.bias
    return normal(0.5 * inner * (1 + torch.erf(inner / math.sqrt(2))), guess.norm)  # type: ignore[arg-type]


def literal_words(objective: MaskedWords, model: DualStream, seed: int) -> Tensor:
    """Equations 1 and 2, text by text and word by word, without padding."""
    table = model.text.encoder.get_input_embeddings().weight
    images = model.encode_images(some_pictures(model)).pooled
    assert images is not None
    inputs, labels = masked_words(seed)
    assert any(BLANK in text for text in inputs)
    losses = []
    for text, (seen, right) in enumerate(zip(inputs, labels, strict=True)):
        words = torch.stack([objective.blank if word == BLANK else table[word] for word in seen])
        states = model.text.encoder(inputs_embeds=words[None], attention_mask=torch.ones(1, len(words)))[0]
        if objective.fused:
            states = literal.fuse(states, images[None, IMAGE_IDS.tolist().index(int(TEXT_IDS[text]))])
        logits = torch.stack([table @ guessed(state, objective.guess) + objective.bias for state in states[0]])
        losses.append(literal.masked_language(logits[None], [right]))
    return torch.stack(losses).mean()


def literal_fragments(objective: MaskedFragments, model: DualStream, seed: int) -> Tensor:
    """Equations 3 and 4, picture by picture and fragment by fragment."""
    texts = model.encode_texts(some_tokens()).pooled
    assert texts is not None
    last: nn.Linear = objective.guess[1]  # type: ignore[assignment]
    losses = []
    for image, hidden in enumerate(hidden_fragments(seed, model)):
        states, features = literal_states(model, image, hidden)
        if objective.fused:
            states = literal.fuse(states[None], texts[None, TEXT_IDS.tolist().index(int(IMAGE_IDS[image]))])[0]
        guesses = torch.stack([last.weight @ guessed(states[n], objective.guess[0]) + last.bias for n in hidden])
        right = torch.stack([normal(features[n]) for n in hidden])
        if objective.target == "features":
            losses.append(literal.region_regression(guesses, right))
        else:
            cosines = F.normalize(right - objective.middle, dim=-1) @ objective.centres.T
            losses.append(literal.region_classes_kl(guesses, (cosines / 0.1).softmax(1)))
    return torch.stack(losses).mean()


def literal_regions(model: DualStream, image: int, hidden: list[int]) -> tuple[Tensor, Tensor]:
    """What a reader makes of every region of a picture, and the features of each."""
    reader, (features, boxes, mask) = model.image_reader, (part[image] for part in some_regions())
    assert reader is not None
    features, boxes = features[mask], boxes[mask]
    shown = torch.stack([torch.zeros_like(v) if n in hidden else v for n, v in enumerate(features)])
    vectors = torch.cat([reader.start[None], reader.states(torch.cat([shown, boxes], 1))])[None]
    places = torch.tensor([[0, *[1] * len(features)]])  # [CLS] is at the first, all regions are at the next
    read = reader.tower.encoder(inputs_embeds=vectors, position_ids=places, token_type_ids=places)
    return read.last_hidden_state[0, 1:], features


def literal_states(model: DualStream, image: int, hidden: list[int]) -> tuple[Tensor, Tensor]:
    """What the image side makes of every fragment, and what frozen weights make of it."""
    if model.image is None:
        return literal_regions(model, image, hidden)
    reader, picture = model.image_reader, some_pixels()[image]
    if reader is not None:
        features = model.image_features(picture[None]).patches[0]
        shown = torch.stack([torch.zeros_like(v) if n in hidden else v for n, v in enumerate(features)])
        vectors = torch.cat([reader.start[None], reader.states(shown)])[None]
        return reader.tower.encoder(inputs_embeds=vectors).last_hidden_state[0, 1:], features
    covered = picture.clone()
    for place in hidden:
        row, column = divmod(place, 4)
        covered[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = 0
    encoder = model.image.encoder
    last = encoder(pixel_values=covered[None]).last_hidden_state
    whole = encoder(pixel_values=picture[None], output_hidden_states=True).hidden_states[3]
    return encoder.post_layernorm(last)[0, 1:], whole[0, 1:]


@EVERYWHERE
def test_it_is_the_equation_of_the_paper(name: str, kind: str) -> None:
    seed = 1
    model = model_of(kind)
    objective = fitted(name, model)
    expected = (
        literal_words(objective, model, seed)
        if isinstance(objective, MaskedWords)
        else literal_fragments(objective, model, seed)  # type: ignore[arg-type]
    )
    found = loss_of(objective, pairs_of(model), model, seed)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.backward()
    reached = [n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0]
    text_only, image_only = name == "mlm", name in ("mrfr", "mrc")
    assert any(n.startswith("text") for n in reached) != image_only
    assert any(n.startswith("image") for n in reached) != text_only


def test_cmr_is_equations_5_and_6_for_embeddings_of_any_length() -> None:
    """The inner product of projected [CLS] states, in a batch without repeats: no temperature, no unit length."""
    config = dataclasses.replace(tiny.PIXEL_MODELS["dual-reader"], unit_length=False)  # type: ignore[type-var]
    model = tiny.retriever(config).double()
    assert isinstance(model, DualStream)
    texts, images = model.encode_texts(some_tokens()), model.encode_images(some_pixels().double())
    assert texts.pooled is not None
    assert images.pooled is not None
    one_each = texts._replace(embedding=texts.embedding[1:])
    pairs = Pairs(one_each, images, IMAGE_IDS, IMAGE_IDS)
    projected = (
        texts.pooled[1:] @ model.text_embedding.linear.weight.T,
        images.pooled @ model.image_embedding.linear.weight.T,
    )
    expected = literal.retrieval_eq6(literal.score_eq5(*projected))
    found = loss_of(Contrastive(temperature=1.0, learn_temperature=False), pairs, model)
    torch.testing.assert_close(found, expected)
    weights = [p for p in model.parameters() if p.requires_grad]
    for one, other in zip(gradients(found, weights), gradients(expected, weights), strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(ModelError, match="unit length"):
        export(model, tiny.tokenizer(), "nowhere", name="any length")


@torch.no_grad()
def test_a_single_stream_predicts_words_from_text_and_image_read_together() -> None:
    model = tiny.retriever(dataclasses.replace(tiny.SINGLE, embedding_dim=0))
    assert isinstance(model, SingleStream)
    objective = fitted("vmlm", model)  # type: ignore[arg-type]
    assert objective.needs == {"states"}
    texts, images = model.encode_texts(some_tokens()), model.encode_images(some_pixels())
    assert images.states is not None
    pairs = Pairs(texts, images, TEXT_IDS, IMAGE_IDS, inputs=Inputs(some_tokens(), some_pixels()))
    table, losses = model.transformer.encoder.get_input_embeddings().weight, []
    for text, (seen, right) in enumerate(zip(*masked_words(2), strict=True)):
        words = torch.stack([objective.blank if word == BLANK else table[word] for word in seen])  # type: ignore[arg-type]
        image = images.states[None, IMAGE_IDS.tolist().index(int(TEXT_IDS[text]))]
        read = model.transformer.read(words[None], torch.ones(1, len(words), dtype=torch.bool), image,
                                      torch.ones(image.shape[:2], dtype=torch.bool))[0]  # fmt: skip
        logits = torch.stack([table @ guessed(state, objective.guess) + objective.bias for state in read[: len(seen)]])  # type: ignore[arg-type]
        losses.append(literal.masked_language(logits[None], [right]))
    found = loss_of(objective, pairs, model, 2)  # type: ignore[arg-type]
    torch.testing.assert_close(found, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)


def heard(objective: Loss, pairs: Pairs, model: DualStream) -> Tensor:
    """What the guesses are made of."""
    given: list[Tensor] = []
    guess: nn.Module = objective.guess  # type: ignore[assignment]
    hook = guess.register_forward_pre_hook(lambda _, read: given.append(read[0]))
    loss_of(objective, pairs, model)
    hook.remove()
    return given[0]


@pytest.mark.parametrize("name", ["vmlm", "mlm"])
@torch.no_grad()
def test_a_blanked_or_swapped_word_cannot_be_read_off_its_text(name: str) -> None:
    model = model_of("dual-reader")
    objective = fitted(name, model)
    hidden = torch.zeros(5, 9, dtype=torch.bool)
    for text, (seen, right) in enumerate(zip(*masked_words(0), strict=True)):
        for place, (one, other) in enumerate(zip(seen, right, strict=True)):
            hidden[text, place] = other != -1 and one != other
    before = heard(objective, pairs_of(model), model)
    assert torch.equal(heard(objective, pairs_of(model, some_tokens(hidden)), model), before)
    seen = some_tokens().mask & ~hidden
    assert not torch.equal(heard(objective, pairs_of(model, some_tokens(seen)), model), before)


@pytest.mark.parametrize("name", FRAGMENTS)
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_hidden_fragment_cannot_be_read_off_its_picture(name: str, kind: str) -> None:
    model = model_of(kind)
    objective = fitted(name, model)
    hidden = torch.zeros(4, {"dual-reader": 4, "dual-plain": 16, "dual-regions": 5}[kind], dtype=torch.bool)
    for image, fragments in enumerate(hidden_fragments(0, model)):
        hidden[image, fragments] = True
    original: Images = some_pictures(model)
    other: Images
    shown: Images
    if isinstance(original, Regions):
        changed = torch.where(hidden[:, :, None], 9.0, original.features)
        other, shown = original._replace(features=changed), original._replace(boxes=original.boxes + 1)
    elif kind == "dual-reader":
        original = looked = model.image_features(original)
        other = TowerFeatures(looked.pooled, torch.where(hidden[:, :, None], 9.0, looked.patches))
        shown = TowerFeatures(looked.pooled, torch.where(hidden[:, :, None], looked.patches, 9.0))
    else:
        square = hidden.view(4, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3)
        other, shown = torch.where(square, 9.0, original), torch.where(square, original, 9.0)
    before = heard(objective, pairs_of(model, images=original), model)
    assert torch.equal(heard(objective, pairs_of(model, images=other), model), before)
    assert not torch.equal(heard(objective, pairs_of(model, images=shown), model), before)


@FUSED
def test_the_shares_of_two_processes_add_up(name: str, kind: str) -> None:
    model = model_of(kind)
    objective = fitted(name, model)
    whole = loss_of(objective, pairs_of(model), model)
    shares = [
        loss_of(objective, pairs_of(model, texts=slice(a, b), pictures=slice(c, d)), model)
        for a, b, c, d in ((0, 2, 0, 3), (2, 5, 3, 4))
    ]
    torch.testing.assert_close(torch.stack(shares).sum(), whole)


@FUSED
def test_chunks_have_the_gradients_of_the_whole(name: str, kind: str) -> None:
    found = []
    for chunk in (0, 2):
        model = model_of(kind)
        objective = fitted(name, model)
        objective.chunk = chunk
        loss_of(objective, pairs_of(model), model).backward()
        objective.chunk = 0
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient, rtol=1e-4, atol=1e-5)


@given(
    there=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5),
    seed=st.integers(0, 999),
    share=st.sampled_from([0.01, 0.15, 1.0]),
)
def test_at_least_one_part_is_hidden_and_none_that_is_not_there(
    there: list[list[bool]], seed: int, share: float
) -> None:
    mask = torch.tensor(there)
    hidden = hide(mask, torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)), share)
    assert not (hidden & ~mask).any()
    assert torch.equal(hidden.any(1), mask.any(1))
    assert share < 1 or torch.equal(hidden, mask)


def test_of_15_percent_of_the_words_80_are_blanked_10_swapped_and_10_kept() -> None:
    numbers = torch.rand(200, 100, generator=torch.Generator().manual_seed(0))
    found = mask_words(torch.ones(200, 100, dtype=torch.bool), numbers, 0.15)
    parts = [float(part.float().mean()) for part in found]
    assert parts == pytest.approx([0.15, 0.12, 0.015], abs=0.01)
    assert not (found.blank & found.swapped).any()


def test_fragments_are_hidden_as_in_the_authors_code() -> None:
    numbers = torch.rand(20, 6, generator=torch.Generator().manual_seed(0))
    for hidden, draws in zip(hide(torch.ones(20, 6, dtype=torch.bool), numbers, 0.15), numbers.tolist(), strict=True):
        assert hidden.tolist() == literal.mask_regions(draws, min(range(6), key=lambda n: draws[n]))


def test_towers_of_other_widths_are_refused_only_if_one_is_added_to_the_other() -> None:
    model = tiny.retriever(tiny.PIXEL_MODELS["dual-plain"])
    for kind in (MaskedWords, MaskedFragments):
        with pytest.raises(ModelError, match="width 24 to images of width 32"):
            kind().fit(model)
        kind(fused=False).fit(model)


def test_texts_without_words_or_without_their_picture_add_nothing() -> None:
    model = model_of("dual-reader")
    objective = fitted("vmlm", model)
    short = Tokens(torch.tensor([[2, 3]]), torch.ones(1, 2, dtype=torch.bool))
    one = pairs_of(model, short, texts=slice(0, 1))
    assert loss_of(objective, one, model) == 0
    alone = Pairs(one.texts, one.images, TEXT_IDS + 10, IMAGE_IDS, inputs=pairs_of(model).inputs)
    assert loss_of(objective, alone, model) == 0
    assert loss_of(fitted("mlm", model), alone, model) > 0


@pytest.mark.parametrize("name", ["smrc", "mrc"])
def test_classes_are_clusters_and_a_feature_is_most_of_all_its_own(name: str) -> None:
    objective = LOSSES[name]
    assert isinstance(objective, MaskedFragments)
    objective.fit(model_of("dual-reader"))
    chance = torch.Generator().manual_seed(0)
    middles = 5 * torch.randn(5, 32, generator=chance)
    features = (middles[:, None] + 0.1 * torch.randn(5, 12, 32, generator=chance)).flatten(0, 1)
    objective.init_from_features(features)
    cosines = F.normalize(features - objective.middle, dim=-1) @ objective.centres.T
    classes = cosines.argmax(1).view(5, 12)
    assert (classes == classes[:, :1]).all()
    assert len(set(classes[:, 0].tolist())) == 5
    with pytest.raises(ModelError, match="cannot form 5 classes from 4 fragments"):
        objective.init_from_features(features[:4])


def test_features_of_frozen_layers_are_those_of_the_whole_picture_and_cost_no_dropout() -> None:
    model = model_of("dual-plain")
    expected = frozen_features(model, some_pixels())
    torch.testing.assert_close(frozen_features(model.train(), some_pixels()), expected)
    assert model.image.encoder.training
    torch.testing.assert_close(expected.mean(-1), torch.zeros(4, 16), atol=1e-4, rtol=0)
    torch.testing.assert_close(expected.var(-1, unbiased=False), torch.ones(4, 16), atol=1e-2, rtol=0)


def test_what_cannot_be_combined_is_refused() -> None:
    with pytest.raises(ModelError, match=r"not a SingleStream\n.*dual_stream"):
        MaskedFragments().fit(tiny.retriever(tiny.SINGLE))
    reader, plain = tiny.retriever(tiny.PIXEL_MODELS["dual-reader"]), tiny.retriever(tiny.PIXEL_MODELS["dual-plain"])
    assert isinstance(reader, DualStream)
    assert isinstance(plain, DualStream)
    with pytest.raises(ModelError, match=r"so it must not be trained\n.*rates.image = 0"):
        frozen_features(reader, some_pixels())
    with pytest.raises(ModelError, match=r"none of it is frozen\n.*frozen_layers.image"):
        frozen_features(plain, some_pixels())
    plain.image.requires_grad_(False)
    with pytest.raises(ModelError, match=r"all of it is frozen\n.*image_reader"):
        frozen_features(plain, some_pixels())
    mean = tiny.retriever(tiny.REGION_MODELS["dual-mean"])
    assert isinstance(mean, DualStream)
    with pytest.raises(ModelError, match="needs an image_reader"):
        frozen_features(mean, some_regions())
    with pytest.raises(ModelError, match="reads regions, not pixels"):
        frozen_features(model_of("dual-regions"), some_pixels())
    with pytest.raises(ModelError, match="features of a frozen image tower"):
        see_with_gaps(plain, plain.image_features(some_pixels()), torch.zeros(4, 16, dtype=torch.bool))
    batch, objective = pairs_of(reader), fitted("mlm", reader)
    without = Pairs(batch.texts, batch.images, TEXT_IDS, IMAGE_IDS)
    with pytest.raises(ModelError, match="does not include them"):
        loss_of(objective, without, reader)


@pytest.mark.parametrize(
    ("kind", "setting", "said"),
    [
        (MaskedWords, {"share": 0.0}, "masked_words.share cannot be 0.0"),
        (MaskedFragments, {"share": 1.5}, "masked_fragments.share cannot be 1.5"),
        (MaskedFragments, {"target": "boxes"}, "target cannot be 'boxes'"),
        (MaskedFragments, {"classes": 1}, "masked_fragments.classes cannot be 1\nUse at least 2"),
        (MaskedFragments, {"temperature": 0.0}, "masked_fragments.temperature cannot be 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(kind: type[Loss], setting: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        kind(**setting)
