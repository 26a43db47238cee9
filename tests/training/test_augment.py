import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.errors import ModelError
from sightline.training import augment
from sightline.training.augment import Augment, coloured, crop_boxes, cropped

OFF = Augment(flip=0, crop=1, colour=0)


def pictures(count: int = 4, side: int = 12, seed: int = 0) -> Tensor:
    return torch.randint(256, (count, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("pixels", [pictures(), pictures() / 255, 9 - pictures() / 9], ids=["uint8", "unit", "any"])
def test_with_all_switched_off_nothing_changes(pixels: Tensor) -> None:
    seen = OFF(pixels, generator())
    assert seen.dtype == torch.float32
    assert torch.equal(seen, pixels.float())


def test_flips_are_exact_and_as_frequent_as_asked() -> None:
    pixels = pictures(400, side=4)
    seen = Augment(flip=0.3, crop=1)(pixels, generator())
    mirrored = [torch.equal(after, before.flip(-1).float()) for before, after in zip(pixels, seen, strict=True)]
    unchanged = [torch.equal(after, before.float()) for before, after in zip(pixels, seen, strict=True)]
    assert all(one != other for one, other in zip(mirrored, unchanged, strict=True))
    assert 90 < sum(mirrored) < 150
    assert torch.equal(Augment(flip=1, crop=1)(pixels, generator()), pixels.flip(-1).float())


def test_a_crop_and_its_mirror_image_show_the_same_part() -> None:
    pixels = pictures()
    plain = Augment(flip=0, crop=0.4)(pixels, generator(3))
    mirrored = Augment(flip=1, crop=0.4)(pixels, generator(3))
    torch.testing.assert_close(mirrored, plain.flip(-1), rtol=0, atol=1e-2)


@settings(max_examples=60, deadline=None)
@given(
    smallest=st.floats(0.01, 1),
    aspect=st.floats(1, 5),
    draws=st.lists(st.floats(0, 1, exclude_max=True, width=32), min_size=4, max_size=4),
)
def test_crops_lie_inside_and_have_area_and_ratio_within_bounds(
    smallest: float, aspect: float, draws: list[float]
) -> None:
    left, top, width, height = crop_boxes(torch.tensor([draws]), smallest, aspect)[0].tolist()
    assert left >= 0
    assert top >= 0
    assert left + width <= 1 + 1e-6
    assert top + height <= 1 + 1e-6
    assert smallest - 1e-5 <= width * height <= 1 + 1e-6
    assert 1 / aspect - 1e-4 <= width / height <= aspect + 1e-4


def test_crops_take_every_area_and_place() -> None:
    boxes = crop_boxes(torch.rand(4000, 4, generator=generator()), 0.25, 4 / 3)
    area = boxes[:, 2] * boxes[:, 3]
    areas = area.quantile(torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(areas, torch.tensor([0.25, 0.625, 1]), rtol=0, atol=0.02)
    centres = boxes[:, :2] + boxes[:, 2:] / 2
    torch.testing.assert_close(centres.mean(0), torch.tensor([0.5, 0.5]), rtol=0, atol=0.01)
    assert boxes[:, :2].min() < 0.01
    assert (boxes[:, :2] + boxes[:, 2:]).max() > 0.99


def test_a_crop_shows_its_box_at_full_size() -> None:
    across = torch.linspace(0.05, 0.95, 10).expand(1, 1, 10, 10)  # each pixel's own place, in shares of the picture
    pixels = torch.cat([across, across.mT, torch.zeros_like(across)], 1)
    seen = cropped(pixels, torch.tensor([[0.2, 0.4, 0.5, 0.3]]), torch.tensor([False]))
    places = torch.linspace(0.05, 0.95, 10)
    torch.testing.assert_close(seen[0, 0], (0.2 + 0.5 * places).expand(10, 10))
    torch.testing.assert_close(seen[0, 1], (0.4 + 0.3 * places)[:, None].expand(10, 10))


def test_a_crop_of_the_whole_changes_next_to_nothing() -> None:
    pixels = pictures().float()
    seen = cropped(pixels, torch.tensor([[0.0, 0.0, 1.0, 1.0]]).expand(4, 4), torch.zeros(4, dtype=torch.bool))
    torch.testing.assert_close(seen, pixels, rtol=0, atol=1e-2)


@pytest.mark.parametrize("brightest", [255.0, 1.0])
def test_values_stay_in_their_range(brightest: float) -> None:
    pixels = pictures(16) if brightest == 255 else pictures(16) / 255
    seen = Augment(crop=0.3, colour=1.0)(pixels, generator())
    assert seen.min() >= 0
    assert 0.5 * brightest < seen.max() <= brightest


def test_bytes_and_floats_are_changed_alike() -> None:
    change = Augment(crop=0.5, colour=0.4)
    torch.testing.assert_close(change(pictures(), generator()) / 255, change(pictures() / 255, generator()))


def test_colour_factors_do_what_they_say() -> None:
    pixels = 0.25 + 0.3 * torch.rand(1, 3, 6, 6, generator=generator())

    def changed(brightness: float = 1, contrast: float = 1, saturation: float = 1) -> Tensor:
        return coloured(pixels, torch.tensor([[brightness, contrast, saturation]]), 1.0)

    torch.testing.assert_close(changed(), pixels)
    torch.testing.assert_close(changed(brightness=1.5), 1.5 * pixels)
    mean = augment.grey(pixels).mean()
    torch.testing.assert_close(changed(contrast=0), mean.expand_as(pixels))
    torch.testing.assert_close(changed(contrast=1.2) - mean, 1.2 * (pixels - mean))
    torch.testing.assert_close(changed(saturation=0), augment.grey(pixels).expand_as(pixels))


def test_the_same_generator_gives_the_same_changes_and_another_others() -> None:
    change = Augment(colour=0.3)
    one, same, other = (change(pictures(), generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 5), others=st.integers(1, 9))
def test_what_happens_to_a_picture_does_not_depend_on_the_rest_of_the_batch(count: int, others: int) -> None:
    change = Augment(crop=0.5, colour=0.5)
    small = change(pictures(count), generator(7))
    large = change(torch.cat([pictures(count), pictures(others, seed=9)]), generator(7))
    torch.testing.assert_close(large[:count], small)


def test_one_setting_does_not_change_the_luck_of_another() -> None:
    pixels = pictures(50, side=4)
    plain, dull = (Augment(crop=1, colour=colour)(pixels, generator()) for colour in (0, 0.01))
    assert (plain - dull).abs().max() < 10  # mirrored where the other is


def test_pictures_need_not_be_square_and_the_input_is_left_alone() -> None:
    pixels = pictures()[..., :7].clone()
    before = pixels.clone()
    assert Augment(colour=0.5)(pixels, generator()).shape == pixels.shape
    assert torch.equal(pixels, before)


@pytest.mark.parametrize("wrong", [{"flip": 1.5}, {"crop": 0.0}, {"aspect": 0.5}, {"colour": -0.1}], ids=str)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ModelError, match=next(iter(wrong))):
        Augment(**wrong)
