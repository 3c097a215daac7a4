"""The servers themselves: they start, they answer, and a stranger is refused."""

import pytest

from tests.support.servers import Server

pytestmark = pytest.mark.services


def test_milvus_answers(milvus: Server) -> None:
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    client = MilvusClient(uri=milvus.address, token=milvus.token)
    assert client.get_server_version().startswith("v2.3.5")
    client.close()
    with pytest.raises(MilvusException):
        MilvusClient(uri=milvus.address, token="root:wrong").list_collections()


def test_postgres_has_pgvector(postgres: Server) -> None:
    import psycopg

    with psycopg.connect(postgres.address, password=postgres.token) as connection:
        found = connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone()
    assert found == (1,)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres.address, password="wrong")
