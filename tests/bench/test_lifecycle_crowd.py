"""A thousand addresses of one machine."""

from ipaddress import ip_address

from tests.bench.lifecycle_crowd import addresses


def test_every_instance_has_an_address_of_its_own_on_this_machine() -> None:
    hosts = [one.rpartition(":")[0] for one in addresses("7", 1000)]
    assert len(set(hosts)) == 1000
    assert all(ip_address(host).is_loopback for host in hosts)
    assert not any(host.endswith((".0", ".255")) for host in hosts)
