"""Look for secrets in this tree and known vulnerabilities of its requirements: `python -m tools.security`.

Security rules for the code itself are ruff's `S` rules, which pyproject.toml selects with all others.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import default_settings

from tools.check_tree import ROOT, Breach, File, tracked_files

ALLOWED: Mapping[tuple[str, str], str] = {
    ("local_azure/azurite.py", "Base64 High Entropy String"): "Azurite's key, which Microsoft publishes",
    ("local_azure/azurite.py", "Secret Keyword"): "the same",
    ("local_azure/twin/state.py", "Secret Keyword"): "the name of a file",
    ("tests/fixtures/azd/azure.yaml.json", "Secret Keyword"): "a description in Microsoft's schema",
    ("tests/golden/documents.json", "Hex High Entropy String"): "digests",
    ("tests/golden/jobs.json", "Hex High Entropy String"): "digests",
    ("tests/golden/rows.json", "Hex High Entropy String"): "digests",
    ("tests/golden/stored.py", "Hex High Entropy String"): "the digest of nothing",
    ("tests/infra/app_rules.py", "Hex High Entropy String"): "the version of a code asset",
    ("tests/unit/cli/importing/test_batchai.py", "Secret Keyword"): "shows that a password is not printed",
    ("tests/unit/cli/test_upload.py", "Basic Auth Credentials"): "shows that an address with a password is refused",
    ("tests/unit/function_app/adapters/test_apprise.py", "Basic Auth Credentials"): "plain mail is refused",
    ("tests/unit/function_app/adapters/test_apprise.py", "Secret Keyword"): "shows that a token is not logged",
    ("tests/unit/function_app/explain/test_rank_logs.py", "Secret Keyword"): "shows that a key in a log is masked",
    ("tests/unit/local_azure/azure_ml/api/client_bodies.json", "Hex High Entropy String"): "the digest of a snapshot",
    ("tests/unit/shared/test_contract.py", "Hex High Entropy String"): "the digest of a contract",
    ("tests/unit/shard_validation/parquet/verdicts.json", "Hex High Entropy String"): "digests",
    ("tests/unit/shared/test_safe_text.py", "Basic Auth Credentials"): "shows that passwords are masked",
}
"""Texts that only look like secrets: path, the detector's name, and why the text is allowed."""

CLEAN = ROOT / ".landfall" / "files-without-secrets.txt"
"""Digests of files without findings: scanning all files takes half a minute, and few change between scans."""

LOCKS = (
    *("constraints.txt", "requirements-dev-host.txt", "training_job/environment/constraints.txt"),
    *("training_job/environment/constraints-cluster.txt", "training_job/environment/requirements-horovod.txt"),
)
"""Everything that is installed, here and on the cluster, with versions."""
ACCEPTED_ADVISORIES: Mapping[str, str] = {}
"""Ids of advisories that do not concern this project, and why."""
DATABASE = "https://api.osv.dev/v1/query"
MAX_AUDIT_S = 90
NO_ANSWER = ("ConnectionError", "ServiceError", "Timeout", "SSLError", "ProxyError", "JSONDecodeError")
"""Errors in pip-audit's output if its database does not respond; the exit status is 1, as after a finding."""


def main() -> int:
    """Print every secret and every vulnerability; return 1 if there is one."""
    audit = start_audit([ROOT / name for name in LOCKS])  # waits for the network during the scan
    breaches = list(secrets(tracked_files()[0]))
    vulnerable, word = finish_audit(audit)
    for line in [*breaches, *vulnerable]:
        print(line)
    print(f"security: {len(breaches)} secrets; {word}")
    return 1 if breaches or vulnerable else 0


def secrets(files: Sequence[File], *, clean: Path = CLEAN, processors: int = 2) -> Iterator[Breach]:
    """Yield findings that are not allowed; add files without findings to `clean`."""
    version = importlib.metadata.version("detect-secrets")
    digests = {file.path: _digest(version, file) for file in files}
    known = set(clean.read_text().split()) if clean.is_file() else set()
    found = scan([path for path, digest in digests.items() if digest not in known], processors)
    clean.parent.mkdir(parents=True, exist_ok=True)
    clean.write_text("\n".join(sorted({digest for path, digest in digests.items() if path not in found})))
    for path, places in found.items():
        for line, kind in places:
            if (path, kind) not in ALLOWED:
                problem = f"{kind}: if this is a secret, revoke it; if not, say why in ALLOWED of tools/security.py"
                yield Breach(path, line, problem)


def _digest(version: str, file: File) -> str:
    return hashlib.sha256(f"{version}\0{file.path}\0{file.text}".encode()).hexdigest()


def scan(paths: Sequence[str], processors: int = 2) -> dict[str, list[tuple[int, str]]]:
    """Return the line and kind of each secret that a detector finds, by path relative to the repository."""
    collection = SecretsCollection(root=str(ROOT))
    with default_settings() as settings:
        # Otherwise a comment in the line would suppress a finding without a reason.
        settings.disable_filters("detect_secrets.filters.allowlist.is_line_allowlisted")
        collection.scan_files(*paths, num_processors=processors)
    found: dict[str, list[tuple[int, str]]] = {}
    for path, secret in collection:
        found.setdefault(path, []).append((secret.line_number, secret.type))
    return found


def start_audit(locks: Sequence[Path], database: str = DATABASE) -> subprocess.Popen[str]:
    """Start pip-audit on pinned requirements."""
    # Not pip-audit's default, the registry's database: with a mirror that lacks it, pip-audit skips all packages.
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", "osv", "--osv-url", database]
    command += ["--format", "json", "--progress-spinner", "off", "--no-deps", "--disable-pip"]
    command += [word for lock in locks for word in ("--requirement", str(lock))]
    command += [word for advisory in ACCEPTED_ADVISORIES for word in ("--ignore-vuln", advisory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def finish_audit(audit: subprocess.Popen[str], max_s: float = MAX_AUDIT_S) -> tuple[list[str], str]:
    """Return a line for each vulnerability, and a summary of the audit."""
    try:
        answer, complaint = audit.communicate(timeout=max_s)
    except subprocess.TimeoutExpired:
        audit.kill()
        audit.communicate()
        return [], f"skipped: pip-audit (the database of vulnerabilities did not answer within {max_s:.0f} s)"
    try:
        dependencies = json.loads(answer)["dependencies"]
    except ValueError:
        reason = (complaint.strip().splitlines() or ["it said nothing"])[-1][:300]
        if silent := [word for word in NO_ANSWER if word in complaint]:
            return [], f"skipped: pip-audit (no database of vulnerabilities answers here: {silent[0]})"
        return [f"pip-audit failed: {reason}"], "pip-audit failed"
    return [*_vulnerabilities(dependencies)], f"{len(dependencies)} packages audited"


def _vulnerabilities(dependencies: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for package in dependencies:
        if "skip_reason" in package:
            yield f"{package['name']}: not audited: {package['skip_reason']}"
        for found in package.get("vulns", []):  # type: ignore[attr-defined]
            fixed = ", ".join(found["fix_versions"]) or "no version"
            yield f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}"


if __name__ == "__main__":
    sys.exit(main())
