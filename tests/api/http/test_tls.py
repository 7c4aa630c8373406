"""HTTPS with a certificate of the user's."""

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.server import refuse_bad_certificate
from solver.pool import WorkerPool
from stowplan.errors import InputError
from tests.api.serving import serving


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate, its key, the same key encrypted, and another key."""
    folder = tmp_path_factory.mktemp("tls")
    curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    for line in (
        ("genpkey", *curve, "-out", "key.pem"),
        ("genpkey", *curve, "-out", "other.pem"),
        ("pkey", "-in", "key.pem", "-aes256", "-passout", "pass:secret", "-out", "encrypted.pem"),
        ("req", "-x509", "-key", "key.pem", "-days", "2", "-out", "certificate.pem", *names),
    ):
        subprocess.run(("openssl", *line), cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


def settings(folder: Path, key: str = "key.pem", certificate: str = "certificate.pem") -> Settings:
    return Settings(database=IN_MEMORY, tls_certificate=str(folder / certificate), tls_key=str(folder / key))


def test_clients_that_know_the_certificate_are_served(files: Path, pool: WorkerPool) -> None:
    options = settings(files)
    refuse_bad_certificate(options)
    with serving(create_app(options, pool=pool), options) as plain:
        url = str(plain.base_url).replace("http:", "https:")
        known = ssl.create_default_context(cafile=files / "certificate.pem")
        with httpx.Client(base_url=url, verify=known) as client:
            answer = client.get("/v1/policies")
            assert answer.status_code == 200
            assert client.get("/healthz").status_code in (200, 503)
        with (
            httpx.Client(base_url=url, verify=ssl.create_default_context()) as stranger,
            pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            stranger.get("/healthz")
        # Nothing is told without encryption.
        with pytest.raises(httpx.TransportError):
            plain.get("/healthz")


@pytest.mark.parametrize(
    ("key", "certificate", "said"),
    [
        ("other.pem", "certificate.pem", "KEY_VALUES_MISMATCH"),
        ("encrypted.pem", "certificate.pem", "are no certificate and its unencrypted key"),
        ("key.pem", "key.pem", "are no certificate and its unencrypted key"),
        ("key.pem", "none.pem", "none.pem cannot be read; --tls-certificate and --tls-key name PEM files"),
        ("none.pem", "certificate.pem", "none.pem cannot be read"),
    ],
)
def test_files_that_are_of_no_use_are_refused_before_anything_starts(
    files: Path, key: str, certificate: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        refuse_bad_certificate(settings(files, key, certificate))


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key"])
def test_one_without_the_other_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"is missing; TLS needs the certificate and its key"):
        Settings.model_validate({name: "a.pem"})
