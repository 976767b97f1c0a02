"""A model of a disk that loses its power: what a directory holds when only what was flushed is left.

The model is a strict one, the least that POSIX promises: the content of a file is on the disk once the file was
flushed, a name is in its directory once the directory was flushed, and neither brings the other. What was not flushed
may be there all the same, any part of it.

It knows the calls that `trace` shows. A store that writes through mappings, io_uring or copies inside the kernel writes
what no call shows; then `unseen` says so, and nothing can be concluded.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from statebook_conformance.faults.trace import Call, unescape

Tree: TypeAlias = Mapping[str, bytes | None]
"""What is in a directory: relative paths with the content of files, and None for directories."""

_ARGUMENT: Final = re.compile(
    r'(?P<fd>-?\d+|AT_FDCWD)<(?P<path>(?:\\x[0-9a-f]{2})*)>(?P<deleted>\(deleted\))?|"(?P<text>(?:\\x[0-9a-f]{2})*)"'
)
_NUMBER: Final = re.compile(r"-?\d+")
_ANYWHERE: Final = frozenset({"sync", "syncfs", "msync"})
_UNSEEN: Final = frozenset({"copy_file_range", "sendfile", "splice"})


class _File:
    def __init__(self) -> None:
        self.now = bytearray()
        self.disk = bytearray()
        self.pending: list[Callable[[bytearray], None]] = []

    def change(self, change: Callable[[bytearray], None]) -> None:
        change(self.now)
        self.pending.append(change)

    def sync(self) -> None:
        self.disk = bytearray(self.now)
        self.pending.clear()


class _Directory:
    def __init__(self) -> None:
        self.now: dict[str, _Node] = {}
        self.disk: dict[str, _Node] = {}
        self.pending: list[tuple[tuple[str, _Node | None], ...]] = []

    def change(self, *changes: tuple[str, _Node | None]) -> None:
        _set(self.now, changes)
        self.pending.append(changes)

    def sync(self) -> None:
        self.disk = dict(self.now)
        self.pending.clear()


_Node: TypeAlias = "_File | _Directory"


def _set(names: dict[str, _Node], changes: tuple[tuple[str, _Node | None], ...]) -> None:
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _written(offset: int, data: bytes) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    return change


def _sized(size: int, *, shrink: bool = True) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        if shrink:
            del content[size:]
        content.extend(bytes(max(0, size - len(content))))

    return change


class _Opened:
    def __init__(self, flags: str) -> None:
        self.place = 0
        self.appends = "O_APPEND" in flags
        self.flushes = "O_SYNC" in flags or "O_DSYNC" in flags


class PowerLoss:
    """A directory as system calls have made it, now and on the disk.

    Attributes:
        unseen: The calls that changed it in a way that this model cannot follow.
        changes: How many calls have changed a file or a name in it.
        flushes: How many calls have flushed something of it.
    """

    def __init__(self, root: str) -> None:
        """Begin with an empty directory that is itself durable.

        Args:
            root: Its path, links resolved.
        """
        self.unseen: set[str] = set()
        self.changes = 0
        self.flushes = 0
        self._root = root
        self._escaped = "".join(f"\\x{byte:02x}" for byte in os.fsencode(root))
        self._top = _Directory()
        self._opened: dict[tuple[int, int], _Opened] = {}

    # -------------------------------------------------------------------------------------------------------- results

    def flushed(self) -> Tree:
        """What is there when only what was flushed is left."""
        return self._tree(lambda names, _: names, lambda file: bytes(file.disk))

    def scattered(self, rng: random.Random) -> Tree:
        """What is there when, beside what was flushed, any part of the rest has come to the disk as well.

        Args:
            rng: Chooses the part.
        """

        def names(disk: dict[str, _Node], directory: _Directory) -> dict[str, _Node]:
            some = dict(disk)
            for changes in directory.pending:
                if rng.random() < 0.5:
                    _set(some, changes)
            return some

        def content(file: _File) -> bytes:
            some = bytearray(file.disk)
            for change in file.pending:
                if rng.random() < 0.5:
                    change(some)
            return bytes(some)

        return self._tree(names, content)

    def _tree(
        self,
        names: Callable[[dict[str, _Node], _Directory], dict[str, _Node]],
        content: Callable[[_File], bytes],
    ) -> Tree:
        tree: dict[str, bytes | None] = {}

        def walk(directory: _Directory, above: str) -> None:
            for name, node in names(directory.disk, directory).items():
                path = above + name
                if path in tree:
                    continue
                if isinstance(node, _Directory):
                    tree[path] = None
                    walk(node, path + "/")
                else:
                    tree[path] = content(node)

        walk(self._top, "")
        return tree

    # ---------------------------------------------------------------------------------------------------------- calls

    def apply(self, call: Call) -> bool:
        """Follow a call; one that failed, or that is about other places, changes nothing.

        Args:
            call: The call.

        Returns:
            Whether it flushed something.
        """
        if call.result < 0:
            return False
        if call.name == "io_uring_setup":
            self.unseen.add(call.name)
        before = self.flushes
        step = _STEPS.get(call.name)
        if step is not None and self._is_about_it(call):
            step(self, call, _Arguments(call.arguments))
        return self.flushes > before

    def _is_about_it(self, call: Call) -> bool:
        return self._escaped in call.arguments or call.path.startswith(self._root) or call.name in _ANYWHERE

    def open_file(self, call: Call, given: _Arguments) -> None:
        """Make a file where one is made, empty it where it is emptied."""
        self._opened[call.pid, call.result] = opened = _Opened(given.rest)
        place = self._place(call.path)
        if place is None:
            return
        directory, name = place
        node = directory.now.get(name)
        creates = call.name == "creat" or "O_CREAT" in given.rest
        if "O_TMPFILE" in given.rest:
            self.unseen.add("O_TMPFILE")
        if node is None and creates:
            self.changes += 1
            directory.change((name, _File()))
        elif isinstance(node, _File) and node.now and (call.name == "creat" or "O_TRUNC" in given.rest):
            self._change(node, _sized(0), opened)

    def write(self, call: Call, given: _Arguments) -> None:
        """Write at the place of the descriptor, or at the one that is given."""
        opened = self._opened.get((call.pid, given.fd)) or _Opened("O_APPEND")
        data = given.text[: call.result]
        file = self._file(given.path)
        if call.name.startswith("p"):
            named_flags = call.name != "pwritev2" or "RWF_" in given.rest
            offset = given.numbers[-1 if named_flags else -2]
        else:
            offset = len(file.now) if file is not None and opened.appends else opened.place
            opened.place = offset + len(data)
        if file is not None:
            self._change(file, _written(offset, data), opened)

    def seek(self, call: Call, given: _Arguments) -> None:
        """Move the place of a descriptor."""
        opened = self._opened.get((call.pid, given.fd))
        if opened is not None:
            opened.place = call.result

    def close(self, call: Call, given: _Arguments) -> None:
        """Forget a descriptor."""
        numbers = _NUMBER.match(call.arguments)
        if numbers is not None:
            self._opened.pop((call.pid, int(numbers[0])), None)

    def size(self, call: Call, given: _Arguments) -> None:
        """Cut or lengthen a file."""
        path = given.path if call.name != "truncate" else os.fsdecode(given.text)
        file = self._file(path)
        if file is None:
            return
        if call.name == "fallocate":
            if "FALLOC_FL" in given.rest:
                self.unseen.add("fallocate with flags")
            else:
                self._change(file, _sized(given.numbers[-1] + given.numbers[-2], shrink=False), None)
        else:
            self._change(file, _sized(given.numbers[-1]), None)

    def sync(self, call: Call, given: _Arguments) -> None:
        """Flush a file or a directory, or all of them."""
        if call.name in ("sync", "syncfs"):
            self._sync_all(self._top)
            self.flushes += 1
            return
        node = self._node(given.path)
        if node is not None:
            node.sync()
            self.flushes += 1

    def _sync_all(self, directory: _Directory) -> None:
        directory.sync()
        for node in directory.now.values():
            if isinstance(node, _Directory):
                self._sync_all(node)
            else:
                node.sync()

    def rename(self, call: Call, given: _Arguments) -> None:
        """Give a file or directory another name."""
        source, target = (self._place(path) for path in given.paths)
        if "RENAME_EXCHANGE" in given.rest:
            self.unseen.add("renameat2 with RENAME_EXCHANGE")
        node = None if source is None else source[0].now.get(source[1])
        if source is None or target is None or node is None:
            return
        self.changes += 1
        if source[0] is target[0]:
            source[0].change((source[1], None), (target[1], node))
        else:
            target[0].change((target[1], node))
            source[0].change((source[1], None))

    def remove(self, call: Call, given: _Arguments) -> None:
        """Remove a name."""
        place = self._place(given.paths[0])
        if place is not None and place[1] in place[0].now:
            self.changes += 1
            place[0].change((place[1], None))

    def make_directory(self, call: Call, given: _Arguments) -> None:
        """Make a directory."""
        place = self._place(given.paths[0])
        if place is not None:
            self.changes += 1
            place[0].change((place[1], _Directory()))

    def link(self, call: Call, given: _Arguments) -> None:
        """Give a file a second name."""
        source, target = (self._place(path) for path in given.paths)
        node = None if source is None else source[0].now.get(source[1])
        if target is not None and node is not None:
            self.changes += 1
            target[0].change((target[1], node))
        elif target is not None:
            self.unseen.add(call.name)

    def other(self, call: Call, given: _Arguments) -> None:
        """Take note of a change that cannot be followed."""
        if call.name in _UNSEEN and any(self._file(path) is not None for path in given.descriptors):
            self.unseen.add(call.name)
        elif call.name == "msync" and "MS_SYNC" in call.arguments:
            self.unseen.add("msync")

    # ---------------------------------------------------------------------------------------------------------- nodes

    def _change(self, file: _File, change: Callable[[bytearray], None], opened: _Opened | None) -> None:
        self.changes += 1
        file.change(change)
        if opened is not None and opened.flushes:
            file.sync()
            self.flushes += 1

    def _node(self, path: str) -> _Node | None:
        if path == self._root:
            return self._top
        place = self._place(path)
        return None if place is None else place[0].now.get(place[1])

    def _file(self, path: str) -> _File | None:
        node = self._node(path)
        return node if isinstance(node, _File) else None

    def _place(self, path: str) -> tuple[_Directory, str] | None:
        """The directory that a path ends in, and the name there; None outside of the root."""
        path = os.path.normpath("/" + path.lstrip("/"))
        if not path.startswith(self._root + "/"):
            return None
        *above, name = path[len(self._root) + 1 :].split("/")
        directory = self._top
        for part in above:
            found = directory.now.get(part)
            if not isinstance(found, _Directory):
                return None
            directory = found
        return directory, name


class _Arguments:
    """The arguments of a call."""

    def __init__(self, arguments: str) -> None:
        texts: list[bytes] = []
        paths: list[str] = []
        self.descriptors: list[str] = []
        self.fd = -1
        above = ""
        for match in _ARGUMENT.finditer(arguments):
            if match["text"] is None:
                above = os.fsdecode(unescape(match["path"]))
                if match["deleted"]:
                    above = ""
                self.descriptors.append(above)
                if self.fd == -1 and match["fd"] != "AT_FDCWD":
                    self.fd = int(match["fd"])
            else:
                texts.append(unescape(match["text"]))
                paths.append(os.path.join(above, os.fsdecode(texts[-1])))
        self.rest = _ARGUMENT.sub("", arguments)
        self.text = b"".join(texts)
        self.paths = tuple(paths)
        self.path = self.descriptors[0] if self.descriptors else ""
        self.numbers = tuple(int(number) for number in _NUMBER.findall(self.rest))


_STEPS: Final[Mapping[str, Callable[[PowerLoss, Call, _Arguments], None]]] = {
    **dict.fromkeys(("open", "openat", "creat"), PowerLoss.open_file),
    **dict.fromkeys(("write", "writev", "pwrite64", "pwritev", "pwritev2"), PowerLoss.write),
    **dict.fromkeys(("ftruncate", "truncate", "fallocate"), PowerLoss.size),
    **dict.fromkeys(("fsync", "fdatasync", "sync", "syncfs"), PowerLoss.sync),
    **dict.fromkeys(("rename", "renameat", "renameat2"), PowerLoss.rename),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), PowerLoss.remove),
    **dict.fromkeys(("mkdir", "mkdirat"), PowerLoss.make_directory),
    **dict.fromkeys(("link", "linkat", "symlink", "symlinkat"), PowerLoss.link),
    **dict.fromkeys((*_UNSEEN, "msync"), PowerLoss.other),
    "lseek": PowerLoss.seek,
    "close": PowerLoss.close,
}


def put_there(tree: Tree, directory: str) -> None:
    """Make a directory hold exactly a tree.

    Args:
        tree: What it is to hold.
        directory: The directory; all that is in it is removed.
    """
    root = Path(directory)
    for entry in root.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for path, content in sorted(tree.items()):
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
            (root / path).chmod(0o600)
