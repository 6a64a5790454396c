"""Client of the function app's HTTP API."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import click
import httpx

from cli.errors import CliError
from shared.safe_text import one_line, safe_json

TIMEOUT_S = 60.0
"""A cold start of a function app may take half of this."""
MAX_ANSWER_CHARS = 500
MAX_PAGES = 10_000
MAX_TRIES = 4
MAX_RETRY_S = 30.0
NOT_FOUND = 404
FIRST_POLL_S, LAST_POLL_S = 1.0, 10.0
GIVE_UP_S = 600.0
"""How long a follower retries without an answer; a deployment of the app takes a few minutes."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ApiError(CliError):
    """The function app answered with an error; `status` and `code` say which."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class ApiClient:
    """Client of one function app. Every method raises CliError with what to do."""

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        transport: httpx.BaseTransport | None = None,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise CliError(f"The function app's URL {url!r} is malformed: it must start with http:// or https://.")
        if key and not (key.isascii() and key.isprintable()):
            raise CliError(
                "The function app's key is malformed: it contains a line break or another character that no key "
                "contains. Copy the key again."
            )
        try:
            self.is_local = httpx.URL(url).host in LOOPBACK
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise CliError(f"The function app's URL {url!r} is malformed: {error}.") from error
        if key and not self.is_local and url.startswith("http://"):
            raise CliError(
                f"The function app's URL {url!r} would send the function key unencrypted: it must start with "
                f"https://."
            )
        self.url = url.rstrip("/")
        self.is_escaped = True
        """Whether answers are escaped for a terminal; False for commands that print JSON, which escapes them."""
        self._wait = wait
        self._seen: tuple[str, str, dict[str, Any]] | None = None
        """URL, ETag and content of the last answer to a GET: polling does not download it again."""
        headers = {"x-functions-key": key} if key else {}
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=TIMEOUT_S, trust_env=not self.is_local, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def dataset_version(self, dataset: str, version: str) -> dict[str, Any]:
        """Return a dataset version: shards, statistics, runs."""
        return self._object("GET", f"/api/datasets/{quote(dataset, safe='')}/{quote(version, safe='')}")

    def pipelines(self) -> list[dict[str, Any]]:
        """Return the pipelines: dataset, name, state and splits of each."""
        return list(self.pages("/api/pipelines", "pipelines", limit=1000))

    def runs(self, **filters: str | int) -> list[dict[str, Any]]:
        """Return runs, newest first."""
        runs = self._object("GET", "/api/runs", params=filters).get("runs")
        if not isinstance(runs, list):
            raise CliError(f"{self.url}/api/runs answered without a list of runs. Is this a Landfall function app?")
        return runs

    def run(self, run_id: str) -> dict[str, Any]:
        """Return one run."""
        return self._object("GET", f"/api/runs/{quote(run_id, safe='')}")

    def submit(
        self,
        dataset: str,
        version: str | None,
        overrides: Mapping[str, Any],
        *,
        force: bool = False,
        key: str | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Request a run and return it. Synthetic data have no version.

        ``force`` trains again on data that has been trained on. Repeating a request with the same ``key`` starts no
        second run. ``dry_run`` returns the plan instead of starting a run.
        """
        body: dict[str, Any] = {"dataset": dataset, "overrides": dict(overrides)}
        if version is not None:
            body["version"] = version
        if force:
            body["force"] = True
        if dry_run:
            return self._object("POST", "/api/runs", json={**body, "dryRun": True})
        # A proxy that repeats the request repeats its key, and so starts no second run.
        return self._object("POST", "/api/runs", json=body, headers={"Idempotency-Key": key or uuid.uuid4().hex})

    def submit_sweep(self, dataset: str, version: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Request an option sweep and return it. Synthetic data have no version."""
        body = {"dataset": dataset, **({} if version is None else {"version": version}), **asked}
        return self._object("POST", "/api/sweeps", json=body, headers={"Idempotency-Key": uuid.uuid4().hex})

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Cancel a run; return it."""
        return self.post(f"/api/runs/{quote(run_id, safe='')}/cancel")

    def pages(self, path: str, members: str, **parameters: str | int) -> Iterator[dict[str, Any]]:
        """Yield the entries of all pages of a list; each answer names the path of the next page."""
        page = self._object("GET", path, params=parameters)
        for _ in range(MAX_PAGES):
            found, following = page.get(members), page.get("next")
            if not isinstance(found, list):
                raise CliError(f"{self.url}{path} answered without a list. Is this a Landfall function app?")
            yield from found
            if not following:
                return
            if not str(following).startswith(path + "?"):
                raise CliError(f"{self.url}{path} named a next page elsewhere. Is this a Landfall function app?")
            page = self._object("GET", str(following))
        raise CliError(f"{self.url}{path} has more than {MAX_PAGES} pages.")

    def get(self, path: str, **parameters: str | int | list[str]) -> dict[str, Any]:
        """Return the answer to a GET."""
        return self._object("GET", path, params=parameters)

    def post(self, path: str) -> dict[str, Any]:
        """Return the answer to a POST without a body."""
        return self._object("POST", path, headers={"Idempotency-Key": uuid.uuid4().hex})

    def register(self, run_id: str, why: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Register the model of a run despite the gate, or return what that would do."""
        path, body = f"/api/runs/{quote(run_id, safe='')}/register", {"reason": why, "dryRun": dry_run}
        return self._object("POST", path, json=body, headers={"Idempotency-Key": uuid.uuid4().hex})

    def _object(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        response = self._answer(method, path, **request)
        if response.status_code == httpx.codes.NOT_MODIFIED and self._seen:
            answer: Any = self._seen[2]
        elif response.is_error:
            raise _refusal(self.url, response)
        else:
            answer = _json(response)
        if not isinstance(answer, dict):
            raise CliError(f"{self.url}{path} did not answer with a JSON object. Is this a Landfall function app?")
        if method == "GET" and "ETag" in response.headers:
            self._seen = (str(response.request.url), response.headers["ETag"], answer)
        return safe_json(answer) if self.is_escaped else answer

    def _answer(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Return the answer to a request; send it again if it is refused because there were too many requests."""
        try:
            sent = self._http.build_request(method, path, **request)
            if method == "GET" and self._seen and self._seen[0] == str(sent.url):
                sent.headers["If-None-Match"] = self._seen[1]
            for _ in range(MAX_TRIES - 1):
                response = self._http.send(sent)
                if response.status_code != httpx.codes.TOO_MANY_REQUESTS:
                    return response
                self._wait(_retry_after_s(response))
            return self._http.send(sent)
        except httpx.TimeoutException as error:
            raise CliError(f"{self.url} did not answer within {TIMEOUT_S:.0f} s: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CliError(f"{self.url} cannot be reached ({error}). Is it running, and is the URL right?") from error


def _retry_after_s(response: httpx.Response) -> float:
    """Return what Retry-After says, bounded: an answer is from outside."""
    stated = response.headers.get("Retry-After", "")
    return min(float(stated), MAX_RETRY_S) if stated.isascii() and stated.isdigit() and len(stated) < 10 else 1.0  # noqa: PLR2004


def ask_patiently(ask: Callable[[], dict[str, Any]], *, patience_s: float = GIVE_UP_S) -> dict[str, Any]:
    """Return one answer. If there is none, print the error to standard error and ask again. Raises CliError."""
    deadline_s, pause_s = time.monotonic() + patience_s, FIRST_POLL_S
    while True:
        try:
            return ask()
        except CliError as error:
            is_refused = isinstance(error, ApiError) and error.status < httpx.codes.INTERNAL_SERVER_ERROR
            if is_refused or time.monotonic() >= deadline_s:
                raise
            click.echo(f"{error} Trying again.", err=True)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LAST_POLL_S)


def shown_time(at: str) -> str:
    """Return a time of an answer, which is in UTC, to the second."""
    return f"{at[:19].replace('T', ' ')} UTC"


def _refusal(url: str, response: httpx.Response) -> ApiError:
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        message = f"{url} does not accept the key: pass --key or set LANDFALL_FUNCTION_KEY."
        return ApiError(message, status=response.status_code, code="unauthorized")
    answer = _json(response)
    if isinstance(answer, dict) and "code" in answer:
        message = _with_errors(str(answer.get("detail") or "no reason given"), answer.get("errors"))
        return ApiError(message, status=response.status_code, code=str(answer["code"]))
    body = one_line(response.text[:MAX_ANSWER_CHARS]) or "no body"
    return ApiError(f"{url} answered {response.status_code}: {body}", status=response.status_code, code="unknown")


def _with_errors(message: str, errors: object) -> str:
    """Return the message, followed by the errors that it does not contain."""
    parts = [str(e.get("detail")) for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
    lines = [one_line(part) for part in parts if part not in message]
    return "\n".join([one_line(message), *(f"  {line[:MAX_ANSWER_CHARS]}" for line in lines)])


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
