"""Store URLs and the frozen options that they become. Secrets never show in a text of ours (ERR-6)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from statebook.errors import InvalidConfiguration

_URL: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<netloc>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?\Z"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SECRET: Final = re.compile(r"password|secret|token|credential|access_key|api_key|passphrase", re.IGNORECASE)
REDACTED: Final = "***"
"""What stands in the place of a secret."""


class Host(BaseModel):
    """One `host:port` of a URL.

    Attributes:
        name: The host name or address.
        port: The port, or None for the engine's default.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    port: int | None = None

    def __str__(self) -> str:
        """The host as it stands in a URL."""
        name = f"[{self.name}]" if ":" in self.name else quote(self.name, safe="")
        return name if self.port is None else f"{name}:{self.port}"


class StoreUrl(BaseModel):
    """A parsed store URL: `scheme://[user[:password]@][host[:port][,host[:port]…]][/path][?name=value&…]`.

    Attributes:
        scheme: The backend's name.
        username: The user, or None.
        password: The password, or None. Shown nowhere.
        hosts: The hosts, in order; empty where there are none.
        path: The path with its leading `/`, percent-decoded; empty where there is none.
        query: The options, in order, percent-decoded.
    """

    model_config = ConfigDict(frozen=True)

    scheme: str
    username: str | None = None
    password: str | None = Field(default=None, repr=False)
    hosts: tuple[Host, ...] = ()
    path: str = ""
    query: tuple[tuple[str, str], ...] = Field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a store URL.

        Args:
            url: The text.

        Returns:
            Its parts.

        Raises:
            InvalidConfiguration: It is no store URL, a port is no number, or an option stands in it twice.
        """
        match = _URL.match(url)
        if match is None or _CONTROL.search(url):
            raise InvalidConfiguration(
                "a store is named by a URL such as memory://name, file:///absolute/dir or sqlite:///file.db, in which "
                "control characters and # are percent-encoded",
                option="url",
            )
        netloc = match["netloc"]
        userinfo, at, hosts = netloc.rpartition("@")
        username, colon, password = userinfo.partition(":")
        try:
            query = parse_qsl(match["query"] or "", keep_blank_values=True, strict_parsing=bool(match["query"]))
        except ValueError:  # its text holds the pair, which may be a secret
            raise InvalidConfiguration("the options of a URL are name=value pairs joined by &", option="url") from None
        names = [name for name, _ in query]
        for name in names:
            if names.count(name) > 1:
                raise InvalidConfiguration(f"option {name!r} stands in the URL twice; give it once", option=name)
        return cls(
            scheme=match["scheme"],
            username=unquote(username) if at and username else None,
            password=unquote(password) if colon else None,
            hosts=tuple(_host(text) for text in hosts.split(",")) if hosts else (),
            path=unquote(match["path"]),
            query=tuple(query),
        )

    def redacted(self) -> str:
        """The URL without its secrets, fit for errors, logs and certificates (ERR-6)."""
        user = ""
        if self.username is not None or self.password is not None:
            user = quote(self.username or "", safe="") + (f":{REDACTED}" if self.password is not None else "") + "@"
        query = urlencode(
            [(name, REDACTED if _SECRET.search(name) else value) for name, value in self.query], safe="*/:,"
        )
        hosts = ",".join(str(host) for host in self.hosts)
        return f"{self.scheme}://{user}{hosts}{quote(self.path)}" + (f"?{query}" if query else "")

    def with_option(self, name: str, value: str) -> StoreUrl:
        """The same URL with one option set or replaced."""
        kept = tuple(pair for pair in self.query if pair[0] != name)
        return self.model_copy(update={"query": (*kept, (name, value))})

    def __str__(self) -> str:
        """The redacted URL; `unredacted()` has the secrets."""
        return self.redacted()

    def unredacted(self) -> str:
        """The whole URL, secrets included: to hand to another process, never to a log."""
        user = ""
        if self.username is not None or self.password is not None:
            secret = "" if self.password is None else ":" + quote(self.password, safe="")
            user = quote(self.username or "", safe="") + secret + "@"
        query = urlencode(self.query)
        hosts = ",".join(str(host) for host in self.hosts)
        return f"{self.scheme}://{user}{hosts}{quote(self.path)}" + (f"?{query}" if query else "")


def _host(text: str) -> Host:
    match = re.fullmatch(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[0-9]*))?", text)
    if match is None or not (match["v6"] or match["name"]) or (match["port"] and int(match["port"]) > 65_535):
        # Not shown: a "/" inside a password puts the password here.
        raise InvalidConfiguration(
            "the host part of the URL is no host:port; ports are numbers up to 65535, and special characters in a "
            "user name or password are percent-encoded",
            option="url",
        )
    return Host(name=unquote(match["v6"] or match["name"]), port=int(match["port"]) if match["port"] else None)


class BackendOptions(BaseModel):
    """The options of one backend: frozen, complete, checked before anything is opened.

    A backend derives its own class, sets `scheme`, and adds fields whose names are the URL's query parameters.

    Attributes:
        namespace: Everything is stored below this name; namespaces on one server never meet (ID-5). 1 to 128
        characters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    scheme: ClassVar[str] = ""

    namespace: str = Field(default="default", min_length=1, max_length=128)

    @classmethod
    def checked(cls, values: Mapping[str, object], allowed: Iterable[str] | None = None) -> Self:
        """Build the options, turning every complaint into ours.

        Args:
            values: Names and values; texts are converted.
            allowed: The names that a user may give, or None for all fields; for the error text.

        Returns:
            The options.

        Raises:
            InvalidConfiguration: An option is unknown or its value is wrong; names it and what it takes (ERR-6).
        """
        known = sorted(cls.model_fields if allowed is None else allowed)
        for name in values:
            if name not in cls.model_fields:
                raise InvalidConfiguration(
                    f"{cls.scheme}:// has no option {name!r}; it takes {', '.join(known)}",
                    option=name,
                    backend=cls.scheme,
                )
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = str(first["loc"][0]) if first["loc"] else "url"
            raise InvalidConfiguration(
                f"option {name!r} of {cls.scheme}://: {first['msg']}", option=name, backend=cls.scheme
            ) from None
