"""The few pieces of HTML that the page is made of. Whatever is given as text is escaped here; `Html` is already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["Html", "items", "join", "table", "tag", "terms"]


class Html(str):
    """Text that is HTML and must not be escaped again."""

    __slots__ = ()


Text = str | Html


def tag(name: str, *content: Text, **attributes: str | None) -> Html:
    """An element; `class_` is the attribute class, an attribute that is None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{join(content)}</{name}>")


def join(parts: Iterable[Text], between: str = "") -> Html:
    """Texts, escaped, and HTML, as it is."""
    return Html(between.join(part if isinstance(part, Html) else escape(part) for part in parts))


def items(texts: Iterable[Text], **attributes: str | None) -> Html:
    """A list."""
    return tag("ul", *(tag("li", text) for text in texts), **attributes)


def terms(pairs: Iterable[tuple[Text, Text]]) -> Html:
    """Words and what is to be said about them."""
    return tag("dl", *(part for word, said in pairs for part in (tag("dt", word), tag("dd", said))))


def table(caption: str, head: Sequence[Text], rows: Iterable[Sequence[Text]]) -> Html:
    """A table whose first column names the rows; it scrolls in a box of its own where it is too wide."""
    header = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows)
    inner = tag("table", tag("caption", tag("span", caption)), tag("thead", header), tag("tbody", *body))
    # A box that scrolls has to be reachable with the keyboard, and then it needs a name.
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)
