"""The reference of the command line, from the same objects that `--help` prints."""

import re
from collections.abc import Iterator

from tools.pages.markdown import NOTE, table
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from railsearch.cli.app import app

OPENING = """# Command line

Every command, as `railsearch COMMAND --help` prints it. Most commands take `--json` for programs. An error that you can
fix is reported on standard error with exit code 2. A check that finds damage, such as `index verify`, ends with 1.

"""


def render_commands() -> str:
    """Return the page of all commands."""
    command = get_command(app)
    return NOTE + OPENING + "".join(_sections(command, "railsearch"))


def _sections(command: TyperCommand | TyperGroup, path: str) -> Iterator[str]:
    """Yield a section for each command: groups first, then the commands below them."""
    text = _help(command, path)
    is_group = isinstance(command, TyperGroup)
    if path != "railsearch":
        yield f"## {path}\n\n{text}\n\n"
    if not is_group:
        places = [_place(each) for each in command.params if isinstance(each, TyperArgument)]
        yield f"```text\n{' '.join([path, '[OPTIONS]', *places])}\n```\n\n"
    rows = [_row(each) for each in command.params if isinstance(each, TyperOption | TyperArgument) and not each.hidden]
    if rows and not is_group:
        yield table(["argument or option", "default", "meaning"], rows) + "\n"
    for name, each in sorted(command.commands.items()) if isinstance(command, TyperGroup) else []:
        if isinstance(each, TyperCommand | TyperGroup) and not each.hidden:
            yield from _sections(each, f"{path} {name}")


def _help(command: TyperCommand | TyperGroup, path: str) -> str:
    """Return the help of a command, its examples as one block of code.

    Raises:
        ValueError: The command has no help; the message names it.
    """
    lines = (command.help or "").strip().splitlines()
    if not lines:
        raise ValueError(f"`{path}` has no help; give its function a docstring.")
    text = "\n".join(
        f"\n    {line.strip().removeprefix('Example: ')}\n" if line.strip().startswith("Example: ") else line.strip()
        for line in lines
    )
    return re.sub(r"^(    .+)\n{2,}(?=    )", r"\1\n", text, flags=re.MULTILINE)


def _place(argument: TyperArgument) -> str:
    name = str(argument.name).upper()
    return name if argument.required else f"[{name}]"


def _row(parameter: TyperOption | TyperArgument) -> tuple[str, str, str]:
    if isinstance(parameter, TyperArgument):
        names = f"`{str(parameter.name).upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    if parameter.required:
        shown = "required"
    elif isinstance(parameter.show_default, str):
        shown = parameter.show_default  # a default in words, such as that of a recipe
    elif default is True and parameter.secondary_opts:
        shown = f"`{parameter.opts[0]}`"
    elif default is None or default is False or callable(default) or default in ("", (), []):
        shown = ""
    else:
        shown = f"`{default}`"
    return names, shown, parameter.help or ""
