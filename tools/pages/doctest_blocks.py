"""An extension of griffe: the examples of docstrings, which are doctests, become blocks of code on the site."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^(?!\s*$|[ ]*>>> ).+\n?)*)+", flags=re.MULTILINE)


def fence_examples(text: str) -> str:
    r"""Return a docstring whose doctests are fenced.

    >>> fence_examples("Add.\n\n>>> 1 + 1\n2\n\nMore.")
    'Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```{chr(10) * found[0].endswith(chr(10))}", text)


class DoctestBlocks(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring:
            obj.docstring.value = fence_examples(obj.docstring.value)
