"""The extension for tests: that of `$SHARDIFY_EXTENSION`, a file, or the one beside the package."""

from __future__ import annotations

import importlib.util
import os
import sys

import shardify


def load() -> bool:
    """Whether there is one, after it was imported."""
    path = os.environ.get("SHARDIFY_EXTENSION")
    if not path:
        return importlib.util.find_spec("shardify._native") is not None
    if "shardify._native" not in sys.modules:
        spec = importlib.util.spec_from_file_location("shardify._native", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["shardify._native"] = module
        spec.loader.exec_module(module)
        shardify._native = module  # type: ignore[attr-defined]
    return True
