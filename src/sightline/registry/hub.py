"""The Hugging Face hub: download a model, and upload a bundle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.bundle.languages import FOLDER, LANGUAGES_FILE, languages_of, read_languages
from sightline.bundle.layout import HUB_PREFIX, SPEC_FILE
from sightline.bundle.spec import BundleSpec, identity, read_spec
from sightline.errors import ModelError
from sightline.packages import install_extra

# Copies of the weights for other programs, which many models on the hub include.
_NEVER_READ = ["*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf", "onnx/*", "openvino/*", "coreml/*"]
_CARD = "README.md"


def download(name: str) -> Path:
    """Return the folder of a model from the hub, which is downloaded only once."""
    try:
        return Path(_library().snapshot_download(name, ignore_patterns=_NEVER_READ))
    except ModelError:
        raise
    except Exception as error:  # offline, unknown or private: the library's errors have no common base class
        way_out = f"For a folder with this name, leave out {HUB_PREFIX}" if Path(name).is_dir() else ""
        raise ModelError(f"{HUB_PREFIX}{name}: cannot be loaded from the hub: {error}", way_out) from error


def check_pushable(model: str) -> str:
    """Return the hub name in `hf:USER/NAME`; raises an error if it is not valid, or if the user is not logged in."""
    name = model.removeprefix(HUB_PREFIX)
    if name == model or name.count("/") != 1:
        raise ModelError(f"{model}: not a repository to push to", f"Use {HUB_PREFIX}USER/NAME.")
    library = _library()
    try:
        library.utils.validate_repo_id(name)
        library.HfApi().whoami()
    except Exception as error:
        raise ModelError(
            f"{model}: cannot push to this repository: {error}", "Log in with `hf auth login`, or set HF_TOKEN."
        ) from error
    return name


def push(folder: str | Path, model: str, *, private: bool = False) -> str:
    """Upload the files of a bundle to the hub, as `hf:USER/NAME`, in one commit; returns its URL.

    A model card is written from the spec, unless the bundle or the hub already has one.
    """
    folder, name, library = Path(folder), check_pushable(model), _library()
    spec = read_spec(folder)
    add_on = read_languages(folder, identity(spec))
    files = [SPEC_FILE, *spec.files]
    if add_on:
        files += [f"{FOLDER}/{file}" for file in (LANGUAGES_FILE, *add_on.files)]
    api = library.HfApi()
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        added: dict[str, Any] = {file: str(folder / file) for file in files}
        if (folder / _CARD).is_file():
            added[_CARD] = str(folder / _CARD)
        elif not api.file_exists(name, _CARD):
            added[_CARD] = card(spec, name, languages_of(spec.text.languages, add_on)).encode()
        operations = [library.CommitOperationAdd(file, content) for file, content in added.items()]
        found = api.create_commit(name, operations, commit_message=f"Upload the bundle {spec.name}")
    except Exception as error:
        raise ModelError(f"{model}: cannot be pushed: {error}", f"The bundle is complete in {folder}.") from error
    return str(found.repo_url)


def card(spec: BundleSpec, name: str, languages: Sequence[str]) -> str:
    """Return the model card that the hub shows for a bundle: how to use it, and what it can do."""
    listed = "\n".join(f"- {language}" for language in languages)
    return f"""---
library_name: sightline
tags: [sightline, image-text-retrieval]
language:
{listed}
---
# {spec.name}

A Sightline bundle: it finds images by text and text by images, without torch.

```sh
sightline index photos --model {HUB_PREFIX}{name}
sightline search "a dog on a beach" --at photos --model {HUB_PREFIX}{name}
```

Abilities: {", ".join(spec.abilities)}. Precision: {spec.precision}.
"""


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ModelError("models on the hub need huggingface_hub", install_extra("train")) from error
    return huggingface_hub
