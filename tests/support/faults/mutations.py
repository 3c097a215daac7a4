"""Mutations of folders that a stranger resealed: every checksum is right, and one thing makes no sense."""

import copy
import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

from railsearch.folders.similarity_folder import load_similarity
from railsearch.foundation.errors import RailsearchError
from railsearch.index.storage.manifest import seal

JUNK = [
    None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63, 2**70, -(2**63), 0.0, -0.0, 0.5, 1e-300, 1e308, float("nan"),
    float("inf"), -float("inf"), "", "x", "../x", "/etc/passwd", "segments/../../canary", "\0", "a" * 10_000, "F16",
    "F64", "I64", "BF16", "F32", "fp16", "bf16", "fp32", [], {}, [[]], [0], {"x": None}, [1, 2, 3],
    "Average(n=1)", "0" * 64, "0" * 32,
]  # fmt: skip


class Resealed:
    """A copy of a folder that is mutated once, with every checksum set right afterwards."""

    def __init__(self, original: Path, target: Path, choice: random.Random) -> None:
        shutil.copytree(original, target)
        self.path = target
        self.choice = choice

    def mutate_json(self, body: Any) -> Any:
        """Change one to three places anywhere in a JSON value."""
        body = copy.deepcopy(body)
        for _ in range(self.choice.choice([1, 1, 1, 2, 3])):
            body = self._mutate_place(body, body)
        return body

    def _mutate_place(self, value: Any, everything: Any) -> Any:
        choice = self.choice
        if not isinstance(value, (dict, list)) or not value or choice.random() < 0.15:
            return self._other(value)
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = choice.choice(keys)
        action = choice.random()
        if action < 0.1:
            del value[key]
        elif action < 0.2:
            other = choice.choice(keys)
            value[key], value[other] = value[other], value[key]
        elif action < 0.25:
            value[key] = copy.deepcopy(value[choice.choice(keys)])
        elif action < 0.32 and isinstance(value, list):
            value.insert(choice.randrange(len(value) + 1), copy.deepcopy(value[key]))
        elif action < 0.36 and isinstance(value, dict):
            value[choice.choice(["x", "../x", "files", "segments/" + "0" * 32 + ".safetensors"])] = value[key]
        else:
            value[key] = self._mutate_place(value[key], everything)
        return value

    def _other(self, value: Any) -> Any:
        choice = self.choice
        if isinstance(value, bool) or value is None or choice.random() < 0.4:
            return copy.deepcopy(choice.choice(JUNK))
        if isinstance(value, (int, float)):
            return choice.choice(
                [value + 1, value - 1, value * 2, -value, value * 1.0001, value * 10**12, value // 2, str(value)]
            )
        if isinstance(value, str) and value:
            place = choice.randrange(len(value))
            return choice.choice(
                [value[:place], value + value, value[:place] + "0" + value[place + 1 :], value.upper()]
            )
        return copy.deepcopy(choice.choice(JUNK))

    def mutate_header(self, file: Path) -> None:
        """Change the header of a safetensors file; the values stay, or are cut, or get more."""
        content = file.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header, values = json.loads(content[8 : 8 + size]), content[8 + size :]
        kind = self.choice.random()
        if kind < 0.1:
            stated = self.choice.choice([0, 1, 2**20, 2**40, 2**63, 2**64 - 1, size - 1, size + 8])
            file.write_bytes(stated.to_bytes(8, "little") + content[8:])
            return
        if kind < 0.2:
            values = self.choice.choice([values[:-1], values[: len(values) // 2], values + bytes(8), b""])
        text = json.dumps(self.mutate_json(header)).encode()
        text += b" " * (-len(text) % self.choice.choice([1, 8, 8, 8]))
        file.write_bytes(len(text).to_bytes(8, "little") + text + values)

    def mutate_values(self, file: Path) -> None:
        """Put other bytes into the values of a safetensors file: NaN, infinities, zeros, copies of its own."""
        content = bytearray(file.read_bytes())
        first = 8 + int.from_bytes(content[:8], "little")
        place = first + self.choice.randrange(0, max(1, (len(content) - first) // 8)) * 8
        own = first + self.choice.randrange(0, max(1, (len(content) - first) // 8)) * 8
        values = [b"\0" * 8, b"\xff" * 8, b"\0\0\x80\x7f" * 2, b"\x01" + b"\0" * 7, bytes(content[own : own + 8])]
        new = self.choice.choice([*values, self.choice.randbytes(8)])[: len(content) - place]
        content[place : place + len(new)] = new
        file.write_bytes(content)


def seal_config(body: Any) -> bytes:
    """Return a config with its checksum set right."""
    if isinstance(body, dict):
        body = {key: value for key, value in body.items() if key != "checksum"}
        body["checksum"] = xxhash.xxh3_128_hexdigest(json.dumps(body, sort_keys=True).encode())
    return json.dumps(body, indent=2).encode()


def reseal_model(folder: Path, body: Any) -> None:
    """Write the config of a model folder so that sizes, checksums and, if it can be known, the fingerprint fit."""
    weights = (folder / "model.safetensors").read_bytes()
    if isinstance(body, dict):
        body["files"] = {"model.safetensors": {"size": len(weights), "checksum": xxhash.xxh3_128_hexdigest(weights)}}
    (folder / "config.json").write_bytes(seal_config(body))
    try:
        load_similarity(folder)
    except RailsearchError as error:
        _, is_other, rest = str(error).partition("its content has ")
        if is_other:
            (folder / "config.json").write_bytes(seal_config(body | {"fingerprint": rest.partition(":")[0]}))


def reseal_index(folder: Path, manifest: str, body: Any) -> None:
    """Write a manifest that states sizes and checksums as they are."""
    if isinstance(body, dict) and isinstance(body.get("files"), dict):
        for name, entry in body["files"].items():
            file = folder / name if isinstance(name, str) and ".." not in name and "\0" not in name else folder
            if isinstance(entry, dict) and file.is_file() and not file.is_symlink() and file.is_relative_to(folder):
                content = file.read_bytes()
                entry |= {"size": len(content), "checksum": xxhash.xxh3_128_hexdigest(content)}
    (folder / manifest).write_bytes(seal(json.dumps(body)))


def mutate_index(folder: Resealed) -> str:
    """Mutate an index folder in one way, and return which."""
    path, choice = folder.path, folder.choice
    manifests = sorted(str(file.relative_to(path)) for file in (path / "manifests").iterdir())
    manifest = choice.choice([*manifests, *[manifests[-1]] * 4])
    body = json.loads((path / manifest).read_text().partition("\n")[2])
    files = sorted(name for name in body["files"] if name.endswith(".safetensors"))
    kind = choice.choice(
        ["manifest"] * 4 + ["header"] * 3 + ["values", "values", "config", "config", "pointer", "kind", "sealed"]
    )
    if kind == "manifest":
        body = folder.mutate_json(body)
    elif kind == "header":
        folder.mutate_header(path / choice.choice(files))
    elif kind == "values":
        folder.mutate_values(path / choice.choice(files))
    elif kind == "config":
        config = json.loads((path / "similarity/config.json").read_text())
        config["config"] = folder.mutate_json(config["config"])
        reseal_model(path / "similarity", config)
        stated = json.loads((path / "similarity/config.json").read_text())["fingerprint"]
        body["fingerprint"] = stated
        body["models"] = [stated]
    elif kind == "pointer":
        (path / "CURRENT").write_bytes(seal(json.dumps(folder.mutate_json({"version": body["version"]}))))
        return kind
    elif kind == "sealed":
        text = folder.choice.choice(
            [
                "[" * 100_000,
                "[]",
                "NaN",
                "",
                '{"version": 1e999}',
                "\ud800".encode("utf-8", "surrogatepass").decode("latin1"),
            ]
        )
        (path / folder.choice.choice([manifest, "CURRENT"])).write_bytes(
            hashlib.sha256(text.encode()).hexdigest().encode() + b"\n" + text.encode()
        )
        return kind
    elif kind == "kind":
        return mutate_kind(folder)
    if choice.random() < 0.5 and isinstance(body, dict):
        _make_consistent(path, body)
    reseal_index(path, manifest, body)
    return kind


def _make_consistent(folder: Path, body: dict[str, Any]) -> None:
    """State exactly the files that the segments need, as a careful forger would."""
    try:
        names = ["similarity/config.json", "similarity/model.safetensors"]
        for segment in body["segments"]:
            names.append(f"segments/{segment['name']}.safetensors")
            names += [f"metadata/{segment['name']}.arrow"] * bool(segment["has_metadata"])
            names += [segment["tombstones"]] * (segment["tombstones"] is not None)
        body["files"] = {str(name): {"size": 0, "checksum": "0" * 32} for name in names}
    except (TypeError, KeyError):
        return


def mutate_kind(folder: Resealed) -> str:
    """Put a link, a FIFO, a device or a folder in the place of a file or a subfolder."""
    path, choice = folder.path, folder.choice
    places = sorted(str(found.relative_to(path)) for found in path.rglob("*"))
    place = path / choice.choice([*places, "LOCK", "tombstones", "tables"])
    canaries = path.parent / "canaries"
    is_folder = place.is_dir()
    if is_folder:
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    makers: list[tuple[str, Callable[[], None]]] = [
        ("link to a folder", lambda: place.symlink_to(canaries)),
        ("link to a file", lambda: place.symlink_to(canaries / f"{'0' * 32}.safetensors")),
        ("link to a device", lambda: place.symlink_to("/dev/zero")),
        ("link to itself", lambda: place.symlink_to(place.name)),
        ("FIFO", lambda: os.mkfifo(place)),
        ("folder", lambda: None if is_folder else place.mkdir()),
        ("nothing", lambda: None),
    ]
    name, make = choice.choice(makers)
    make()
    return name


def mutate_model(folder: Resealed) -> str:
    """Mutate a model folder in one way, and return which."""
    path, choice = folder.path, folder.choice
    body = json.loads((path / "config.json").read_text())
    kind = choice.choice(["config"] * 3 + ["settings"] * 4 + ["header"] * 3 + ["kind"])
    if kind == "kind":
        return mutate_kind(folder)
    if kind == "config":
        (path / "config.json").write_bytes(seal_config(folder.mutate_json(body)))
        return kind
    if kind == "settings":
        body["config"] = folder.mutate_json(body["config"])
    else:
        folder.mutate_header(path / "model.safetensors")
    reseal_model(path, body)
    return kind
