"""No secret leaves in a text, in whatever form; and a text that leaves is one printable line of bounded length."""

from __future__ import annotations

import base64
import html
import json
import re
import secrets as random
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from ccm_lb import redaction
from ccm_lb.redaction import MASK, Secrets

LONG = "eZyH+bGci/OiJSUzI1NiIsImtp=ZCI6IkRn'QmxXYnh\"5UjR<wT0Z&4"
PASSPHRASE = "correct horse battery staple"
SHORT = "hunter2"


def knowing(*values: str) -> Secrets:
    known = Secrets()
    known.add(*values)
    return known


FORMS: list[tuple[str, Callable[[str], str]]] = [
    ("as it is", str),
    ("in a URL", lambda one: quote(one, safe="")),
    ("in a URL, slashes left", quote),
    ("in a form", quote_plus),
    ("in a URL, small digits", lambda one: re.sub("%..", lambda found: found[0].lower(), quote(one, safe=""))),
    ("in JSON", lambda one: json.dumps(one)[1:-1]),
    ("in HTML", html.escape),
    ("as Python shows it", lambda one: repr(one)[1:-1]),
    ("in hex", lambda one: one.encode().hex()),
]  # fmt: skip


@pytest.mark.parametrize("secret", [LONG, PASSPHRASE, SHORT])
@pytest.mark.parametrize("form", [form for _, form in FORMS], ids=[name for name, _ in FORMS])
def test_a_secret_is_found_in_every_form(form: Callable[[str], str], secret: str) -> None:
    if secret == SHORT and form(secret) == secret.encode().hex():
        return  # too short to be told from other numbers
    shown = knowing(secret).redact(f'said "{form(secret)}", and more')
    assert shown == f'said "{MASK}", and more'


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", range(7))
def test_a_secret_is_found_in_base64_at_any_offset(before: int, encode: Callable[[bytes], bytes]) -> None:
    secret = random.token_urlsafe(40)
    code = encode(f"{'x' * before}{secret}: and more".encode()).decode()
    shown = knowing(secret).redact(code)
    assert MASK in shown
    for offset in range(3):
        inner = encode(b"\0" * offset + secret.encode()).decode()
        assert not any(inner[at : at + 12] in shown for at in range(4, len(inner) - 16))


@pytest.mark.parametrize("kept", [20, 40])
def test_a_long_secret_is_found_where_a_text_was_cut_off_in_its_middle(kept: int) -> None:
    assert knowing("x" + LONG).redact(f"the header {('x' + LONG)[:kept]}") == f"the header {MASK}"


def test_a_short_secret_is_masked_where_it_stands_alone() -> None:
    assert (
        knowing("admin").redact("admin, administrators and admin=admin") == f"{MASK}, administrators and {MASK}={MASK}"
    )
    assert knowing("abc").redact("abc") == "abc", "to mask it would make texts unreadable"


def test_the_beginning_of_another_word_is_no_secret() -> None:
    known = knowing("kubernetes-admin-password-1")
    assert known.redact("kubernetes-admin-pwd kubernetes-admin") == "kubernetes-admin-pwd kubernetes-admin"


def test_what_was_a_secret_stays_one() -> None:
    known = Secrets()
    tokens = [f"eyJhbGciOiJSUzI1NiIsImtpZCI6-{random.token_urlsafe(30)}" for _ in range(200)]
    known.add(*tokens)
    known.add(*tokens)
    assert known.redact(" ".join(tokens)) == " ".join([MASK] * 200)


def test_only_so_many_are_remembered() -> None:
    known = Secrets()
    tokens = [random.token_urlsafe(30) for _ in range(redaction.MEMORY - 1)]
    oldest = ["same-beginning-for-both-first", "first-of-its-kind-there-is", SHORT]
    known.add(*oldest, "same-beginning-for-both-second", *tokens[3:], tokens[4], *tokens[:3])
    assert known.redact(tokens[-1]) == MASK
    assert known.redact(" ".join(oldest[1:])) == " ".join(oldest[1:])
    assert known.redact("same-beginning-for-both-second") == MASK


@pytest.mark.parametrize(
    ("header", "hidden"),
    [
        ("Bearer abcdef", ["abcdef"]),
        ("Basic " + base64.b64encode(b"joe:pass:word").decode(), ["pass:word", base64.b64encode(b"joe:pass:word").decode()]),
        ("Basic not-base64!", ["not-base64!"]),
        ("Basic /w==", ["/w=="]),
        ("0123456789", ["0123456789"]),
        ("Token abcdef", ["abcdef"]),
        (None, []),
    ],
)  # fmt: skip
def test_a_header_is_taken_apart(header: str | None, hidden: list[str]) -> None:
    known = Secrets()
    known.add_header(header)
    for one in hidden:
        assert known.redact(one) == MASK


def test_a_signature_of_one_request_is_no_secret() -> None:
    known, header = Secrets(), "AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=0123456789abcdef0123456789abcdef"
    known.add_header(header)
    assert known.redact(header) == header


class Inner(BaseModel):
    api_key: str = "inner-value"
    port: int = 1


class Settings(BaseModel):
    password: SecretStr = SecretStr("typed-value")
    url: str = "https://joe:url-value@cloud.example.com/"
    token_file: str = "/run/token-file"
    inner: Inner = Inner()


def test_settings_are_secrets_by_type_and_name_and_in_urls() -> None:
    known = Secrets()
    known.add_settings(Settings())
    known.add_settings({"users": [{"user": {"exec": {"env": [{"name": "ACME_PASSWORD", "value": "env-value"}]}}}]})
    known.add_settings({"users": ({"user": {"client-key-data": "key-value", "client-key": "/etc/client.key"}},)})
    for one in ("inner-value", "typed-value", "url-value", "env-value", "key-value"):
        assert known.redact(one) == MASK
    for one in ("/run/token-file", "/etc/client.key"):
        assert known.redact(one) == one


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://joe:pw@cloud.example.com/v1", "https://***@cloud.example.com/v1"),
        ("Authorization: Bearer abcdefghijklmnopqrst.uv", "Authorization: Bearer ***"),
        ("a bearer of bad news", "a bearer of bad news"),
        ("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl!", "token ***!"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----.", "***."),
        ("-----BEGIN PRIVATE KEY-----\nabc", "***"),
        ("GET /v1?page=2&access_token=abc&x=1", "GET /v1?page=2&access_token=***&x=1"),
    ],
)
def test_what_looks_like_a_secret_is_masked_whoever_it_belongs_to(text: str, shown: str) -> None:
    assert Secrets().redact(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\r\n lines\tand\u2028three\x85", "two lines and three "),
        ("\x1b[31mred\x9b0m\x07\x7f", "\ufffd[31mred\ufffd0m\ufffd\ufffd"),
        ("abc\u202egnp.exe\u2066\u200b", "abc\ufffdgnp.exe\ufffd\ufffd"),
        ("half \ud800 a pair", "half \ufffd a pair"),
        ("grün 日本 é", "grün 日本 é"),
    ],
)
def test_a_text_becomes_one_printable_line(text: str, shown: str) -> None:
    assert redaction.clean(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"), [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abc…"), ("äöü", 5, "ä…")]
)
def test_a_text_is_cut_by_bytes_between_characters(text: str, limit: int, shown: str) -> None:
    assert redaction.cut(text, limit) == shown
    assert len(shown.encode()) <= limit


def test_a_line_is_all_of_it_and_a_secret_at_the_cut_is_gone_before() -> None:
    assert knowing("s" + LONG).line(f"said\ns{LONG}", 1024) == f"said {MASK}"
    shown = knowing("s" + LONG).line("x" * 1000 + " \x1b s" + LONG + "y" * 10_000_000, 1024)
    assert shown.startswith("x" * 1000 + f" \ufffd {MASK}yyyy")
    assert shown.endswith("…")
    assert len(shown.encode()) <= 1024


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("token: abc: hunter2", "mapping values are not allowed here, line 1, column 11"),
        ("token: *hunter2", "found undefined alias, line 1, column 8"),
        ("token: !hunter2 x", "could not determine a constructor, line 1, column 8"),
        ("token: \x07hunter2", "a character that YAML does not allow"),
    ],
)
def test_what_is_wrong_in_yaml_is_said_without_the_text(text: str, said: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load(text)
    assert redaction.yaml_problem(caught.value) == said


def test_a_problem_of_yaml_without_a_place() -> None:
    assert redaction.yaml_problem(yaml.MarkedYAMLError()) == "it cannot be read"


@pytest.mark.parametrize(
    "piece",
    [LONG[:10], LONG[-10:], LONG[20:34], LONG[3:]],
    ids=["its beginning", "its end", "its middle", "nearly all"],
)
def test_what_is_left_of_a_long_secret_where_a_text_was_cut_is_masked(piece: str) -> None:
    assert knowing(LONG).redact(f"said {piece} and") == f"said {MASK} and"


def test_both_halves_of_a_secret_that_was_shortened_in_its_middle_are_masked() -> None:
    token = random.token_urlsafe(32)
    assert (
        knowing(token).redact(f"input_value='Bearer {token[:17]}...{token[-23:]}'")
        == f"input_value='Bearer {MASK}...{MASK}'"
    )


def test_the_end_of_an_encoded_secret_is_masked() -> None:
    token = random.token_urlsafe(60)
    for code in (base64.b64encode(token.encode()).decode(), token.encode().hex()):
        assert knowing(token).redact(f"...{code[-40:-4]}") == f"...{MASK}"


def test_a_passphrase_is_masked_where_lines_were_broken() -> None:
    assert knowing(PASSPHRASE).redact("correct horse\n  battery\tstaple!") == f"{MASK}!"


def test_what_begins_alike_is_masked_once() -> None:
    tokens = [f"eyJhbGciOiJSUzI1NiIsImtpZCI6{random.token_urlsafe(30)}" for _ in range(50)]
    assert knowing(*tokens).redact(f"<{tokens[0]}{tokens[1]}>") == f"<{MASK}>"


def test_half_a_secret_at_the_end_of_what_is_looked_at_is_not_shown() -> None:
    long, known = "A1b2C3d4" * 4, knowing("A1b2C3d4" * 4, "fifteen-letters", PASSPHRASE)
    for secret in (long, "fifteen-letters", PASSPHRASE):
        for kept in range(1, len(secret)):
            # So many secrets before it that what remains of 16 Ki characters is short enough to be shown.
            text = (f"{long} " * 1000)[: 16_384 - kept] + secret + "z" * 100
            assert secret[: max(kept, 4)] not in known.line(text, 10_000)


def test_what_stands_in_settings_is_not_forgotten_for_what_comes_later() -> None:
    known = Secrets()
    known.add("later-a-setting")
    known.add_settings({"password": "of-the-settings", "token": "later-a-setting"})
    known.add(*(random.token_urlsafe(8) for _ in range(2 * redaction.MEMORY)), "of-the-settings")
    assert known.redact("of-the-settings later-a-setting") == f"{MASK} {MASK}"


def test_what_is_used_again_is_remembered_longer() -> None:
    known = knowing("used-again-and-again")
    for _ in range(3):
        known.add(*(random.token_urlsafe(8) for _ in range(redaction.MEMORY - 1)), "used-again-and-again")
    assert known.redact("used-again-and-again") == MASK


def test_a_secret_among_the_arguments_of_a_plug_in_is_one() -> None:
    known = Secrets()
    known.add_settings({"exec": {"args": ["get-token", "--client-secret=arg-value", "--region=somewhere"]}})
    assert known.redact("arg-value somewhere") == f"{MASK} somewhere"


def test_the_password_in_a_url_is_a_secret_also_decoded() -> None:
    known = Secrets()
    known.add_url("https://joe:p%40ss%2Fword@cloud.example.com/v1")
    known.add_url("https://cloud.example.com/v1")
    assert known.redact("p@ss/word p%40ss%2Fword cloud.example.com") == f"{MASK} {MASK} cloud.example.com"
