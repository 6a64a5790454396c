"""Notifications to people through Apprise: e-mail, Teams, Slack, SMS and other services with an Apprise URL.

Apprise is imported for the first notification that needs it. It returns False for a failure and only logs the reason.
The error message therefore contains the logged lines, with all parts of the address masked.
"""

from __future__ import annotations

import logging
import re
import threading
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from function_app.config.settings import LOOPBACK
from function_app.domain.errors import NotificationError
from function_app.domain.outcomes import NO_LINKS, Links, for_people
from function_app.domain.records import NotificationRecord
from shared.safe_text import mask_secrets, one_line

if TYPE_CHECKING:
    from apprise import NotifyBase

MAX_TITLE_CHARS = 200
MAX_BODY_CHARS = 4000
"""Maximum length; services with lower limits truncate further."""
MAX_SAID = 5
TIMEOUT_S = 10.0
LOCAL = frozenset({"dbus", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows"})
"""Apprise's schemas that notify on the machine itself."""
MIN_SECRET_CHARS = 4


class _Said(logging.Handler):
    """Collects the lines that Apprise logs, separately for each thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.local = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message if this thread collects them."""
        kept: list[str] = getattr(self.local, "kept", [])
        if len(kept) < MAX_SAID:
            kept.append(record.getMessage())


_said = _Said()
_lock = threading.Lock()


class AppriseNotifier:
    """Implements Notifier. The URL is a secret, so no message contains it or a part of it."""

    def __init__(self, url: str, links: Links = NO_LINKS) -> None:
        """Store a URL that `settings.read_apprise_url` has checked. Apprise parses it at the first notification."""
        self._url = url
        self._links = links

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier. Redirects are refused and certificates checked, even if the URL states otherwise."""
        title, body = for_people(notification, self._links)
        kept: list[str] = []
        _said.local.kept = kept
        try:
            service = self._service(notification.recipient)
            is_sent = service.notify(body=body[:MAX_BODY_CHARS], title=one_line(title)[:MAX_TITLE_CHARS])
        except NotificationError:
            raise
        except Exception as error:
            problem = type(error).__name__  # The text of the error may contain the URL.
            raise NotificationError(f"{notification.recipient} was not reached: {problem}") from error
        finally:
            _said.local.kept = []
        if not is_sent:
            raise NotificationError(
                f"{notification.recipient} refused: {self._masked(kept) or 'Apprise says no reason'}"
            )

    def _service(self, recipient: str) -> NotifyBase:
        """Return Apprise's object for the URL. Raises NotificationError if the URL is invalid or not allowed."""
        asset, instantiate, truncate = _apprise()
        service: NotifyBase | None = instantiate(self._url, asset=asset)
        if service is None:
            raise NotificationError(f"{recipient} is not an Apprise URL, or one of a service that is not installed")
        schema = self._url.partition(":")[0].lower()
        is_plain = schema not in _texts(service.secure_protocol) and service.host not in LOOPBACK
        if schema in LOCAL or is_plain:
            secure = ", ".join(sorted(_texts(service.secure_protocol)))
            raise NotificationError(
                f"{recipient} must be an Apprise URL that leaves the machine encrypted"
                + (f": it begins with {secure}:// instead" if secure and schema not in LOCAL else "")
            )
        service.redirects, service.verify_certificate, service.overflow_mode = False, True, truncate
        service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT_S
        return service

    def _masked(self, said: list[str]) -> str:
        """Return the logged lines as one line, without any part of the URL that could be a secret."""
        text = one_line(mask_secrets(" ".join(said)))
        parts = {part for part in re.split(r"[/:@?&=,+\s]", self._url) if len(part) >= MIN_SECRET_CHARS}
        for part in sorted({*parts, *(unquote(part) for part in parts)}, key=len, reverse=True):
            text = text.replace(part, "***")
        return text[:300]


def _texts(names: Any) -> frozenset[str]:
    return frozenset({names} if isinstance(names, str) else names or ())


def _apprise() -> tuple[Any, Any, Any]:
    """Import Apprise; return an asset, the function that parses a URL, and the mode that truncates long texts."""
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # for imghdr, which one of its services imports
        from apprise import Apprise, AppriseAsset, OverflowMode
        from apprise.manager_plugins import NotificationManager

        plugins: Any = NotificationManager
        plugins().load_modules()  # A repeated call has no effect.

        asset = AppriseAsset(
            app_id="Landfall",
            app_desc="Landfall",
            app_url="",
            async_mode=False,
            http_redirects=False,
            allow_templates=False,
            storage_mode="memory",
            pgp_autogen=False,
            pem_autogen=False,
        )
        log = logging.getLogger("apprise")
        if _said not in log.handlers:
            log.addHandler(_said)
            log.propagate = False  # The log may contain addresses.
        return asset, Apprise.instantiate, OverflowMode.TRUNCATE
