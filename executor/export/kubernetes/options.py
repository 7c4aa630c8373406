"""What manifests are told beside the plan: options in words, declared once for all controllers, and read strictly."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from executor.export.kubernetes.declared import ALL
from executor.kubernetes.names import (
    HOSTNAME,
    LABEL,
    LABEL_FORM,
    LABEL_VALUE,
    QUALIFIED,
    SUBDOMAIN,
    SUBDOMAIN_FORM,
)
from stowplan.errors import InputError, Issue

T = TypeVar("T")

_QUANTITY = re.compile(r"\d{1,18}(?:\.\d{1,9})?(?:m|k|Ki|[MGTPE]i?)?")
_PATH = re.compile(r"/[^:,\0]{0,1023}")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_S = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume: `source` as Kubernetes has it (`{"hostPath": {...}}`)."""

    source: Mapping[str, Any]
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Options as they were read; None and empty: not said."""

    image: str
    command: tuple[str, ...]
    namespace: str
    gpu_resource: str
    resources: Mapping[str, str]
    tolerations: tuple[Mapping[str, str], ...]
    node_key: str
    volumes: tuple[Volume, ...]
    shm: str | None
    host_network: bool
    service_account: str | None
    priority_class: str | None
    queue: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ttl_s: int | None
    gated: bool
    runtime: str


def read_settings(options: Mapping[str, str]) -> Settings:
    """Read options that `checked` has looked through.

    Raises
    ------
    InputError
        With an issue for every option that is wrong, or missing.
    """
    reader = _Reader(options, [])
    settings = Settings(
        image=reader.read("image", _image) or "",
        command=reader.read("command", _command) or (),
        namespace=reader.read("namespace", _label) or "default",
        gpu_resource=reader.read("gpu-resource", _qualified) or "nvidia.com/gpu",
        resources=reader.read("resources", _resources) or {},
        tolerations=reader.read("tolerations", _tolerations) or (),
        node_key=reader.read("node-key", _qualified) or HOSTNAME,
        volumes=reader.read("volumes", _volumes) or (),
        shm=reader.read("shm", _quantity),
        host_network=options.get("host-network") == "yes",
        service_account=reader.read("service-account", _subdomain),
        priority_class=reader.read("priority-class", _subdomain),
        queue=reader.read("queue", _label),
        labels=reader.read("labels", _labels) or {},
        annotations=reader.read("annotations", _annotations) or {},
        ttl_s=reader.read("ttl", _seconds),
        gated=options.get("pin") == "gate",
        runtime=reader.read("runtime", _subdomain) or "torch-distributed",
    )
    if settings.gpu_resource in settings.resources:
        reader.issues.append(_issue("resources", f"has {settings.gpu_resource}, whose number the plan says"))
    for name, wanted in (("image", settings.image), ("command", settings.command)):
        if not wanted and not any(issue.pointer == f"/{name}" for issue in reader.issues):
            reader.issues.append(_issue(name, f"is missing; give {name}=..., {ALL[name].summary}"))
    if reader.issues:
        raise InputError("options of the export to Kubernetes", reader.issues)
    return settings


def read_name(options: Mapping[str, str], name: str, issues: list[Issue]) -> str | None:
    """An option that is the name of an object; what is wrong goes to `issues`."""
    return _Reader(options, issues).read(name, _subdomain)


def read_key(options: Mapping[str, str], name: str, issues: list[Issue]) -> str | None:
    """An option that is the key of a label; what is wrong goes to `issues`."""
    return _Reader(options, issues).read(name, _qualified)


def read_amount_s(options: Mapping[str, str], name: str, issues: list[Issue]) -> int | None:
    """An option that is whole seconds; what is wrong goes to `issues`."""
    return _Reader(options, issues).read(name, _seconds)


class _Reader:
    """Reads options, and collects what is wrong with them."""

    def __init__(self, options: Mapping[str, str], issues: list[Issue]) -> None:
        self._options = options
        self.issues = issues

    def read(self, name: str, of: Callable[[str], T]) -> T | None:
        """The option; None where it is not given, is empty, or is wrong."""
        text = self._options.get(name, "")
        try:
            return of(text) if text else None
        except ValueError as error:
            self.issues.append(_issue(name, str(error)))
            return None


def _issue(name: str, detail: str) -> Issue:
    return Issue(code="bad_option", pointer=f"/{name}", detail=detail)


def _matching(pattern: re.Pattern[str], form: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"is {text[:80]!r}; {form}")
        return text

    return read


_label = _matching(LABEL, LABEL_FORM)
_subdomain = _matching(SUBDOMAIN, SUBDOMAIN_FORM)
_qualified = _matching(QUALIFIED, "must be a name such as nvidia.com/gpu")
_image = _matching(re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,499}"), "must be an image such as registry/name:tag")
_quantity = _matching(_QUANTITY, "must be an amount from 0 on, such as 4, 500m or 64Gi")
_value = _matching(LABEL_VALUE, "must be of letters, digits, dots, dashes and underscores, 63 at most")


def _command(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"is {text[:80]!r}, which has an open quotation mark; quote as in a shell") from error
    if not words:
        raise ValueError("is empty; give the program and its arguments")
    return words


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= _MAX_S):
        raise ValueError(f"is {text[:80]!r}; must be whole seconds from 0 to {_MAX_S}")
    return int(text)


def _resources(text: str) -> Mapping[str, str]:
    return {_qualified(key): _quantity(amount) for key, amount in _pairs(text, "rdma/hca_shared_devices_a=1")}


def _labels(text: str) -> Mapping[str, str]:
    return {_qualified(key): _value(value) for key, value in _pairs(text, "team=llm")}


def _annotations(text: str) -> Mapping[str, str]:
    return {_qualified(key): value for key, value in _pairs(text, "team=llm")}


def _pairs(text: str, example: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for word in text.split(","):
        key, equals, value = word.partition("=")
        if not equals or key in seen:
            why = f"names {key!r} twice" if equals else f"has {word!r}"
            raise ValueError(f"{why}; write {example}, with commas between them")
        seen.add(key)
        yield key, value


def _tolerations(text: str) -> tuple[Mapping[str, str], ...]:
    found = []
    for word in text.split(","):
        taint, colon, effect = word.partition(":")
        if colon and effect not in _EFFECTS:
            raise ValueError(f"has effect {effect!r}; must be one of {', '.join(_EFFECTS)}")
        key, equals, value = taint.partition("=")
        told = {"operator": "Equal", "value": _value(value)} if equals else {"operator": "Exists"}
        found.append({"key": _qualified(key), **told, **({"effect": effect} if colon else {})})
    return tuple(found)


def _volumes(text: str) -> tuple[Volume, ...]:
    volumes = tuple(_volume(word) for word in text.split(","))
    paths = [volume.path for volume in volumes]
    if len(set(paths)) < len(paths):
        raise ValueError("mounts two volumes at one path")
    return volumes


def _volume(word: str) -> Volume:
    kind, _, rest = word.partition(":")
    source, _, rest = rest.partition(":")
    path, _, mode = rest.partition(":")
    if not _PATH.fullmatch(path) or mode not in ("", "ro"):
        raise ValueError(f"has {word[:80]!r}; write pvc:CLAIM:/path, with commas between them")
    if path == "/dev/shm":  # noqa: S108 - a mount point in a container, not a file of ours
        raise ValueError("mounts /dev/shm, which is there already; give its size with shm=64Gi")
    match kind:
        case "pvc":
            told: Mapping[str, Any] = {"persistentVolumeClaim": {"claimName": _subdomain(source)}}
        case "hostpath" if _PATH.fullmatch(source):
            told = {"hostPath": {"path": source, "type": "Directory"}}
        case "emptydir":
            told = {"emptyDir": {"sizeLimit": _quantity(source)} if source else {}}
        case _:
            raise ValueError(f"has {word[:80]!r}; volumes are pvc:CLAIM:/path, hostpath:/path:/path, emptydir::/path")
    return Volume(source=told, path=path, read_only=mode == "ro")
