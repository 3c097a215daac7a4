"""The shards of a split index, built by a runner: on Ray, all at once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from railsearch.distributed.batch.job import InputFile
from railsearch.distributed.batch.runners import Runner
from railsearch.distributed.building import ShardBuild
from railsearch.distributed.layout import shard_name
from railsearch.foundation.progress import counting


@dataclass(frozen=True, slots=True)
class ShardBuilds:
    """Builds of shards as numbered pieces of work."""

    builds: tuple[ShardBuild, ...]

    def open(self) -> Callable[[int], int]:
        """Return the function that builds a shard, unless it is complete already."""

        def build(number: int) -> int:
            self.builds[number]()
            return 0  # the rows of a shard are not counted

        return build

    def is_done(self, number: int) -> bool:
        """Return whether the folder of a shard is there."""
        build = self.builds[number]
        return (build.path / shard_name(build.number)).is_dir()


def build_with(
    runner: Runner, *, files: Sequence[str | Path] = (), show_progress: bool | None = None
) -> Callable[[Iterable[ShardBuild]], None]:
    """Return the argument `run` of `build_shards`, for builds by a runner.

    On Ray, the stream of items must be one that can be sent to other processes, and its files must be on a file system
    that all machines share.

    Args:
        runner: builds the shards, such as `RayRunner()`.
        files: the files of the stream; if one changes before all shards are built, the build is refused.
        show_progress: draw a progress bar; by default only on a terminal.
    """

    inputs = [InputFile.seen(file) for file in files]

    def run(builds: Iterable[ShardBuild]) -> None:
        task = ShardBuilds(tuple(builds))
        with counting("building shards", len(task.builds), is_shown=show_progress) as count:
            runner.run(task, range(len(task.builds)), lambda _: count(1))
        for file in inputs:
            file.check()

    return run
