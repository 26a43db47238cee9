from pathlib import Path

from typer.testing import CliRunner

from sightline import cli, demo
from sightline.training.recipe import read_recipe


def test_the_demo_trains_exports_and_finds_what_it_is_asked_for(tmp_path: Path) -> None:
    told = list(demo.run(tmp_path))
    cases = next(line for line in told if "of 100 cases" in line)
    assert int(cases.split(" in ")[1].split()[0]) > 90
    for query, name in (
        (demo.QUERIES[0], "0-red-square-top-left.png"),
        (demo.QUERIES[1], "0-yellow-cross-bottom-right.png"),
    ):
        assert told[told.index(f"\n  {query}") + 1].endswith(name)


def test_the_demos_recipe_is_a_recipe_and_the_command_is_there() -> None:
    assert read_recipe(demo.RECIPE).name == "demo"
    assert "demo" in CliRunner().invoke(cli.app, ["--help"]).output
