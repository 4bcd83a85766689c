"""Text and elements of HTML. Whatever comes from a run passes through here, and cannot be markup afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape


def text(value: object) -> str:
    """Return what shows a value as it is; what is not printable, and so may be hidden, shows as ``?``."""
    letters = str(value)
    if not letters.isprintable():
        letters = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in letters)
    return escape(letters)


def element(name: str, content: str = "", attributes: Mapping[str, object] | None = None) -> str:
    """Return an element around HTML; attributes are escaped, those that are None left out."""
    words = "".join(f' {key}="{text(value)}"' for key, value in (attributes or {}).items() if value is not None)
    return f"<{name}{words}>{content}</{name}>"


def bullets(lines: Iterable[object]) -> str:
    """Return lines of text as a list; nothing where there are none."""
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def facts(values: Mapping[str, object]) -> str:
    """Return names and what they stand for, side by side."""
    return "<dl>" + "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in values.items()) + "</dl>"


def folded(title: str, content: str) -> str:
    """Return HTML that is shown when one asks for it."""
    return f"<details><summary>{text(title)}</summary>{content}</details>"
