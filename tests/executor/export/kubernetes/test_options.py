"""Options of manifests that are wrong: each is named, with what would be right."""

import pytest

from executor.export.kubernetes.declared import ALL
from executor.export.kubernetes.options import read_settings
from stowplan.errors import InputError
from tests.executor.export.kubernetes.controllers import GIVEN


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("image", "", "is missing; give image=..."),
        ("image", "-x", "is '-x'; must be an image"),
        ("command", "", "is missing; give command=..."),
        ("command", "  ", "is empty; give the program"),
        ("command", "a 'b", "open quotation mark"),
        ("namespace", "Team", "is 'Team'; must be of letters a to z"),
        ("namespace", "a.b", "is 'a.b'; must be of letters a to z"),
        ("gpu-resource", "nvidia.com/gpu/x", "must be a name such as nvidia.com/gpu"),
        ("resources", "cpu", "has 'cpu'; write rdma/"),
        ("resources", "cpu=-1", "is '-1'; must be an amount from 0 on"),
        ("resources", "cpu=1,cpu=2", "names 'cpu' twice"),
        ("resources", "nvidia.com/gpu=8", "has nvidia.com/gpu, whose number the plan says"),
        ("tolerations", "a:Never", "has effect 'Never'; must be one of NoSchedule"),
        ("tolerations", "a=b c", "is 'b c'; must be of letters, digits"),
        ("node-key", "a b", "must be a name such as"),
        ("volumes", "data:/data", "has 'data:/data'; write pvc:CLAIM:/path"),
        ("volumes", "nfs:x:/data", "volumes are pvc:CLAIM:/path"),
        ("volumes", "pvc:Data:/data", "is 'Data'; must be of letters a to z"),
        ("volumes", "pvc:a:/data,pvc:b:/data", "mounts two volumes at one path"),
        ("volumes", "pvc:a:/data:rw", "write pvc:CLAIM:/path"),
        ("volumes", "pvc:a:/dev/shm", "give its size with shm=64Gi"),
        ("volumes", "hostpath:scratch:/data", "volumes are pvc"),
        ("shm", "-64Gi", "must be an amount from 0 on"),
        ("shm", "64GB", "must be an amount from 0 on"),
        ("service-account", "a_b", "is 'a_b'; must be of letters"),
        ("priority-class", "High", "is 'High'; must be of letters"),
        ("queue", "a/b", "is 'a/b'; must be of letters"),
        ("labels", "a=b/c", "is 'b/c'; must be of letters"),
        ("labels", "-a=b", "is '-a'; must be a name such as"),
        ("annotations", "a", "has 'a'; write team=llm"),
        ("ttl", "-1", "must be whole seconds from 0"),
        ("ttl", "99999999999", "must be whole seconds from 0"),
        ("runtime", "Torch", "is 'Torch'; must be of letters"),
    ],
)
def test_what_is_wrong_is_said(name: str, text: str, message: str) -> None:
    assert name in ALL
    with pytest.raises(InputError) as caught:
        read_settings({**GIVEN, name: text})
    (issue,) = caught.value.issues
    assert (issue.pointer, message in issue.detail) == (f"/{name}", True), issue.detail


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InputError) as caught:
        read_settings({"queue": "?", "ttl": "x"})
    assert [issue.pointer for issue in caught.value.issues] == ["/queue", "/ttl", "/image", "/command"]
