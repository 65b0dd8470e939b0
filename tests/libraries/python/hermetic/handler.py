"""Tells what it was built with."""

import importlib.metadata
import random

import yaml
from hostler_handler import handler

try:
    import stray
except ImportError:
    stray = None


@handler
def handle(body: dict):
    import late

    packages = sorted(f"{each.name}=={each.version}" for each in importlib.metadata.distributions())
    print("answer", yaml.safe_load("a: 1"), stray, late.WORD, len(packages), packages)
    assert random.random() != random.random()
