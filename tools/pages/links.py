"""Links between pages: written for readers of the repository, rewritten for readers of the site."""

import os
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]*)(#[^()\s]*)?\)")
FENCE = re.compile(r" *```")
OUTSIDE = re.compile(r"[a-z]+:")
INDENT = " " * 4


def rewrite(text: str, *, page: str, places: Mapping[str, str]) -> str:
    """Return a page whose links lead to places on the site.

    Args:
        text: a page of Markdown.
        page: its path in the repository.
        places: the place on the site of each file of the repository that is there. A link to another file of the
            repository becomes the path of that file, as code.
    """
    lines, is_code, out = text.splitlines(), False, []
    for line in lines:
        is_code ^= bool(FENCE.match(line))
        out.append(line if is_code or line.startswith(INDENT) else LINK.sub(lambda m: _link(m, page, places), line))
    return "\n".join(out) + "\n"


def _link(found: re.Match[str], page: str, places: Mapping[str, str]) -> str:
    is_image, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if not target or OUTSIDE.match(target):
        return found[0]
    inside = os.path.normpath(PurePosixPath(page).parent / target)
    if inside in places:
        here = PurePosixPath(places.get(page, page)).parent
        return f"{is_image}[{text}]({os.path.relpath(places[inside], here)}{anchor})"
    if inside.startswith("docs/"):
        return found[0]  # the site's own check reports it
    return text if text.startswith("`") else f"`{inside}`" if text == inside else f"{text} (`{inside}`)"


def fence_shell_blocks(text: str) -> str:
    """Return a page whose indented blocks, which are for a shell, are fenced: the site then colors them.

    >>> fence_shell_blocks("Run\\n\\n    make docs\\n\\nand wait\\n")
    'Run\\n\\n```sh\\nmake docs\\n```\\n\\nand wait\\n'
    """
    lines, out, row, is_fenced = text.splitlines(), [], 0, False
    while row < len(lines):
        is_fenced ^= bool(FENCE.match(lines[row]))
        if is_fenced or not lines[row].startswith(INDENT) or (row and lines[row - 1].strip()):
            out.append(lines[row])
            row += 1
            continue
        last = row
        while last < len(lines) and (not lines[last].strip() or lines[last].startswith(INDENT)):
            last += 1
        block = "\n".join(line[len(INDENT) :] for line in lines[row:last]).rstrip()
        out += ["```sh", *block.splitlines(), "```", *([""] if last < len(lines) else [])]
        row = last
    return "\n".join(out) + "\n"
