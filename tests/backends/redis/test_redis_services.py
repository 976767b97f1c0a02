"""The servers of the suite make a failover where a test wants one, and otherwise none, however slow the machine is."""

import time

from statebook_conformance.services.redis_service import RedisClusterService, RedisSentinelService, ask

PAUSE_S = 3.0
"""Longer than servers that fail over may be silent."""


def _roles(ports: tuple[int, ...]) -> list[str]:
    return [next(line for line in ask(port, "INFO", "replication").split("\r\n") if "role:" in line) for port in ports]


def test_what_a_failover_made_a_master_is_one_after_a_restart(sentinel: RedisSentinelService) -> None:
    first = sentinel.master()
    first.kill()
    deadline = time.monotonic() + 60
    while sentinel.master().port == first.port:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.start()
    sentinel.recover()
    second = sentinel.master()
    sentinel.kill()
    sentinel.recover()
    assert sentinel.master().port == second.port != first.port
    assert "role:slave" in ask(first.port, "INFO", "replication")
    assert "role:master" in ask(second.port, "INFO", "replication")


def test_sentinels_leave_a_slow_master_alone() -> None:
    with RedisSentinelService() as service:
        first = service.master_port()
        service.master().pause()
        time.sleep(PAUSE_S)
        service.resume()
        assert service.master_port() == first
        service.kill()
        time.sleep(PAUSE_S)
        service.recover()
        assert service.master_port() == first
        assert "role:master" in ask(first, "INFO", "replication")


def test_a_cluster_leaves_slow_masters_alone() -> None:
    with RedisClusterService() as service:
        before = _roles(service.ports)
        service.servers[0].pause()
        time.sleep(PAUSE_S)
        service.resume()
        assert _roles(service.ports) == before
        service.servers[0].kill()
        time.sleep(PAUSE_S)
        service.recover()
        service.kill()
        service.recover()
        assert _roles(service.ports) == before
