"""`railsearch serve`: answer searches over HTTP."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import torch
import typer

from railsearch.cli.options import EngineText, chosen_engine
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.extras import missing_extra
from railsearch.server.hosts import is_loopback
from railsearch.server.keys import READ_VARIABLE, WRITE_VARIABLE, read_keys

SWITCH_SECONDS = 0.0005
"""How long a thread of Python runs before another one may; HTTP must not wait long for searches."""


def serve(
    indexes: Annotated[
        list[Path],
        typer.Argument(help="Index folders, whole or split; each is served by its name.", show_default=False),
    ],
    *,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder of a text retriever or a recommender that built an index: it then takes texts, or histories. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Prepared data with the histories of users, for a recommender.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; other machines reach 0.0.0.0, which needs keys.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen at; 0 chooses a free one.", min=0, max=65535)] = 8080,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with the lists read and write of keys, which only you can read (chmod 600). Keys may also "
            f"be in {READ_VARIABLE} and {WRITE_VARIABLE}, separated by commas.",
            show_default=False,
        ),
    ] = None,
    writable: Annotated[
        bool, typer.Option("--writable", help="Allow requests with a write key to change the indexes.")
    ] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            help="Check the folders for new versions at this interval, in seconds, and serve them.",
            min=0.1,
            show_default=False,
        ),
    ] = None,
    ray: Annotated[
        bool, typer.Option("--ray", help="Hold the shards of split indexes in actors of a Ray cluster.")
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the head of the Ray cluster, or auto; by default RAY_ADDRESS, or a new one here.",
            show_default=False,
        ),
    ] = None,
    replicas: Annotated[int, typer.Option(help="Copies of each shard on the Ray cluster.", min=1)] = 1,
    engine: EngineText = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads of a search; by default one for each core.", min=1, show_default=False)
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name in Host that is answered, besides localhost and IP addresses. May be repeated.",
            show_default=False,
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin whose pages may call the API, such as https://shop.example. May be repeated.",
            show_default=False,
        ),
    ] = None,
    max_body_mb: Annotated[int, typer.Option(help="Largest body of a request, in MB.", min=1, max=1024)] = 16,
    queue: Annotated[int, typer.Option(help="Queries that may wait; more are answered 429.", min=1)] = 256,
    batch: Annotated[int, typer.Option(help="Queries that are searched together if they wait.", min=1, max=32)] = 32,
    head_seconds: Annotated[
        float, typer.Option(help="Time in which the head of a request must arrive.", min=0.1)
    ] = 10.0,
    body_seconds: Annotated[
        float, typer.Option(help="Time in which the body of a request must arrive.", min=0.1)
    ] = 20.0,
    drain_seconds: Annotated[
        float,
        typer.Option(help="After SIGTERM, time in which /readyz answers 503 before connections are closed.", min=0.0),
    ] = 0.0,
    access_log: Annotated[bool, typer.Option(help="Write a line of JSON for each request to standard output.")] = True,
) -> None:
    """Answer searches of index folders over HTTP, and show a page that explains the answers.

    The page is at /, the description of the API at /docs, metrics for Prometheus at /metrics. By default only this
    machine can reach the server, and nothing can be changed.

    A running server follows its folders: POST /v1/indexes/NAME/refresh, or --watch, serves a new version without a
    pause. On SIGTERM, it answers all waiting requests and ends with exit code 0.

    Example: railsearch serve movies.index

    Example: railsearch serve answers.index --model runs/insuranceqa/mol/model

    Example: railsearch serve items.index --model runs/ml-1m/hstu-mol/model --data data/ml-1m

    Example: railsearch serve shards/ --ray --address 10.0.0.7:6379 --replicas 2

    Example: railsearch serve a.index b.index --host 0.0.0.0 --api-key-file keys.toml --writable
    """
    try:
        from railsearch.server import uvicorn_server  # noqa: PLC0415  (optional)
        from railsearch.server.app import create_app  # noqa: PLC0415
        from railsearch.server.encoding import read_models  # noqa: PLC0415
        from railsearch.server.limits import Limits  # noqa: PLC0415
        from railsearch.server.service import ServerSettings, Service  # noqa: PLC0415
        from railsearch.server.split_index import ShardSettings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error.name or "fastapi", "serve") from error
    keys = read_keys(api_key_file)
    if not is_loopback(host) and not keys:
        raise InvalidInputError(
            f"--host is {host}, which other machines can reach, but there are no keys; give --api-key-file, or listen "
            "at 127.0.0.1."
        )
    if not ray and (address is not None or replicas > 1):
        raise InvalidInputError(f"--address and --replicas ({replicas}) need --ray; add --ray, or omit them.")
    if ray:
        from railsearch.distributed.ray_cluster import connect  # noqa: PLC0415

        connect(address)  # before the server sets its handlers of signals: Ray sets some that end the process
    if threads is not None:
        torch.set_num_threads(threads)
    sys.setswitchinterval(SWITCH_SECONDS)
    listening = uvicorn_server.bind(host, port)
    with listening:
        service = Service(
            indexes,
            settings=ServerSettings(
                keys=keys,
                is_writable=writable,
                allowed_hosts=tuple(allowed_host or ()),
                cors_origins=tuple(cors_origin or ()),
                limits=Limits(
                    max_body_bytes=max_body_mb * 2**20,
                    max_buffered_bytes=max(128, 4 * max_body_mb) * 2**20,
                    queue_queries=queue,
                    batch_queries=batch,
                    max_queries=min(256, queue),
                ),
                body_seconds=body_seconds,
                watch_seconds=watch,
                owns_process=True,
            ),
            models=read_models(model or [], data),
            engine=chosen_engine(engine),
            shards=ShardSettings(uses_ray=ray, replicas=replicas, address=address),
        )
        _set_up_logging(access_log=access_log)
        shown = f"[{host}]" if ":" in host else host
        print(
            f"railsearch serves {', '.join(service.indexes)} at http://{shown}:{listening.getsockname()[1]}/",
            flush=True,
        )
        uvicorn_server.run_server(
            create_app(service), service, listening, head_seconds=head_seconds, drain_seconds=drain_seconds
        )
    if service.failure is not None:
        raise service.failure


def _set_up_logging(*, access_log: bool) -> None:
    """Write requests to standard output, and everything else to standard error."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    access = logging.getLogger("railsearch.access")
    access.propagate = False
    access.setLevel(logging.INFO if access_log else logging.WARNING)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    access.handlers = [handler]
