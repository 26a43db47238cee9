"""`sightline demo`, `doctor` and `models`: try, check and list what is installed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline import __version__
from sightline.cli.console import print_json, print_lines, print_table, results, tell
from sightline.cli.options import At

if TYPE_CHECKING:
    from sightline.doctor import Finding


def demo() -> None:
    """Try it in about a minute: index the images that come with Sightline, and search them."""
    import tempfile

    from sightline.demo import run

    with tempfile.TemporaryDirectory() as folder:
        for line in run(Path(folder)):
            print(line, flush=True)


def doctor(
    at: At = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")] = False,
) -> None:
    """Check this installation, and a collection, and say how to fix problems."""
    from sightline.doctor import Finding, examine

    findings: list[Finding] = []
    for finding in examine(at):
        findings.append(finding)
        if not as_json:
            _show_finding(finding)
    is_well = all(finding.state != "broken" for finding in findings)
    if as_json:
        print_json({"version": __version__, "well": is_well, "findings": [one.to_json() for one in findings]})
    if not is_well:
        raise typer.Exit(1)


def _show_finding(finding: "Finding") -> None:
    mark, colour = {"good": ("ok", "green"), "warning": ("note", "yellow"), "broken": ("FAIL", "red")}[finding.state]
    with results():
        typer.echo(f"{typer.style(f'{mark:4}', fg=colour, bold=True)}  {finding.subject}: {finding.says}")
        if finding.way_out:
            typer.echo(f"      → {finding.way_out}")


def models(as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")] = False) -> None:
    """List installed and published models with their capabilities, sizes and results."""
    from sightline.registry.installed import installed_models, language_lines, published_table, table
    from sightline.registry.published import PUBLISHED_MODELS

    bundles = installed_models(on_problem=lambda error: tell(f"skipped: {error}"))
    if as_json:
        found = [bundle.to_json() for bundle in bundles]
        print_json({"models": found, "known": [one.to_json() for one in PUBLISHED_MODELS]})
        return
    if bundles:
        print_table(table(bundles))
        print_lines(*language_lines(bundles))
    else:
        print_lines(
            "No models found. Install Sightline with its model, or export one: sightline export CHECKPOINT --out DIR"
        )
    print_table(published_table(PUBLISHED_MODELS))
    print_lines(
        "here: already downloaded. Sightline has not measured these. To measure one: sightline eval hf:NAME DATA",
        "To make a bundle of one of these or a similar model: sightline export hf:NAME --out DIR",
    )
