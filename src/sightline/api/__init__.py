"""The public functions. Each imports what it needs when called, so that importing Sightline is fast."""

from sightline.api.evaluation import evaluate as evaluate
from sightline.api.search import explain as explain
from sightline.api.search import explain_codes as explain_codes
from sightline.api.search import index as index
from sightline.api.search import load as load
from sightline.api.search import open as open
from sightline.api.search import search as search
from sightline.api.training import export as export
from sightline.api.training import train as train
