"""Names as Kubernetes takes them."""

import hashlib
import re

HOSTNAME = "kubernetes.io/hostname"
# Longest DNS label.
MAX_LABEL = 63
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
LABEL_FORM = "must be of letters a to z, digits, and between them dashes, 63 at most"
SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
SUBDOMAIN_FORM = "must be of letters a to z, digits, and between them dots and dashes, 253 at most"
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
# A key of labels, annotations, taints, resources and gates: perhaps a domain, then a name.
QUALIFIED = re.compile(
    r"(?:(?=[^/]{1,253}/)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)


def dns_label(name: str, length: int = MAX_LABEL) -> str:
    """Name as a DNS label (RFC 1035): lower case, a letter first, not too long."""
    kept = re.sub("[^a-z0-9-]", "", name.lower()).strip("-")
    label = kept if kept[:1].isalpha() else f"job-{kept}".rstrip("-")
    return label if len(label) <= length else f"{label[: length - 7]}-{digest(name)}"


def digest(text: str) -> str:
    """Six characters that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]
