"""What may be shown of values that can hold a key or a password."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

_SECRET: Final = re.compile(
    r"(?i)secret|passw|passphrase|pwd|credential|auth|bearer|jwt|cookie|signature|key|token(?!s)"
)
"""Too many names rather than too few: who asks for the value itself gets it."""
_MASK: Final = "***"


def masked(value: object) -> Any:
    """The value, with a mask for what stands under a name that secrets have, at any depth."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _MASK if _hides(key, part) else masked(part) for key, part in items}
    if isinstance(value, list | tuple):
        return [masked(part) for part in cast("Sequence[object]", value)]
    return value


def _hides(name: object, value: object) -> bool:
    return value is not None and isinstance(name, str) and _SECRET.search(name) is not None
