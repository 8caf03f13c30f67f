"""fakecloud's synchronous client, made from the asynchronous one, so that the two never differ."""

import re
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "fakecloud" / "client"
ASYNCHRONOUS = _FOLDER / "asynchronous.py"
SYNCHRONOUS = _FOLDER / "synchronous.py"

_DOCSTRING = '''"""The client for programs without a loop; made from `asynchronous.py` by `python -m tests.docs`, not to be edited."""'''
_WORDS = (
    (r"\bAsyncClient\b", "Client"),
    (r"\bAsyncConnection\b", "Connection"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio\n", ""),
    (r"\b(async|await) ", ""),
)


def made(source: str) -> str:
    """The synchronous client of an asynchronous one's text."""
    text = re.sub(r'\A""".*?"""', lambda _: _DOCSTRING, source, flags=re.DOTALL)
    for word, instead in _WORDS:
        text = re.sub(word, instead, text, flags=re.MULTILINE)
    return text


def write() -> None:
    SYNCHRONOUS.write_text(made(ASYNCHRONOUS.read_text()))
