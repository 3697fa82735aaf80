"""What is taken out of a text before others see it, and what stays."""

# ruff: noqa: RUF001  what only looks like ASCII is looked for

from __future__ import annotations

import pytest

from untildone.tools.redaction import has_key, redacted

SECRET = "hunter2secret"

BY_A_SIGN = [
    '{"password": "SECRET"}',
    '"api_key":"SECRET"',
    "'token': 'SECRET'",
    "log in with --password SECRET",
    "--api-key=SECRET",
    "curl -u admin:SECRET x",
    "mysql -uroot -pSECRET",
    "sshpass -p SECRET ssh h",
    "password 'SECRET'",
    "password：SECRET",
    "ｐａｓｓｗｏｒｄ: SECRET",
    "pass\u200bword: SECRET",
    "pass: SECRET",
    "pw: SECRET",
    "DB_PASS=SECRET",
    "export PGPASSWORD=SECRET",
    "password -> SECRET",
    "password=>SECRET",
    "password was SECRET",
    "the password for root is SECRET",
    "secret = \n SECRET",
    "X-Api-Key: SECRET",
    "client_secret=SECRET",
    "AccountKey=SECRET==",
    "<password>SECRET</password>",
    "<db:password kind='x'>SECRET</db:password>",
    "Passwort: SECRET",
    "mot de passe : SECRET",
    "contraseña: SECRET",
    "senha é SECRET",
    "пароль: SECRET",
    "密码：SECRET",
    "密码是SECRET",
    "パスワード: SECRET",
    "비밀번호: SECRET",
    "كلمة المرور: SECRET",
    "Authorization: Token SECRET",
    "Cookie: sid=SECRET; x=SECRET",
    "Set-Cookie: a=1; b=SECRET",
    "https://user:SECRET@x.y",
    "postgres://u:p@ss/SECRET@h/d",
    "https://x.y/?q=1&key=SECRET#SECRET",
]


RIGHT_BEHIND = [
    "my password, SECRET, is old",
    "PASSWD SECRET",
    "api-key SECRET",
    "password[SECRET]",
]


@pytest.mark.parametrize("secret", ["swordfish", "hunter2secret", "Zz!9"])
@pytest.mark.parametrize("text", BY_A_SIGN)
def test_what_a_sign_says_is_a_secret_is_taken_out_whatever_it_looks_like(text: str, secret: str):
    assert secret not in redacted(text.replace("SECRET", secret))


@pytest.mark.parametrize("secret", ["hunter2secret", "Zz!9"])
@pytest.mark.parametrize("text", RIGHT_BEHIND)
def test_what_stands_behind_such_a_name_and_is_no_plain_word_is_taken_out(text: str, secret: str):
    assert secret not in redacted(text.replace("SECRET", secret))


@pytest.mark.parametrize(
    "text",
    [
        'password: "correct horse battery staple"',
        "password is correct horse battery staple",
        "passphrase: correct horse battery staple",
        "seed phrase: correct horse battery staple",
    ],
)
def test_a_phrase_is_taken_out_as_a_whole(text: str):
    assert not {"correct", "horse", "battery", "staple"} & set(redacted(text).split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pin 4921", "pin [number]"),
        ("OTP 482 913", "OTP [number]"),
        ("cvv 123", "cvv [number]"),
        ("ada＠example.com", "[email]"),
        ("ada [at] example [dot] com", "[email]"),
        ("call 0９０－１２３４－５６７８", "call [number]"),
        ("٠١٢٣٤٥٦٧٨٩", "[number]"),
        ("4111_1111_1111_1111", "[number]"),
        ("at 00:1A:2B:3C:4D:5E now", "at [address] now"),
        ("at 001a.2b3c.4d5e now", "at [address] now"),
        ("ping 10.0.0.1 and 2001:db8::ff00:42:8329", "ping [address] and [address]"),
        ("p@ssw0rd!Zz9", "[secret]"),
        ("passport C01X00T47", "passport [number]"),
        ("take hunter2secret along", "take [secret] along"),
    ],
)
def test_what_looks_like_personal_data_is_taken_out(text: str, shown: str):
    assert redacted(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Write a token bucket rate limiter in Go",
        "Basic understanding of skyscrapers and skeleton-keys",
        "Explain std::vector and the time 12:30:45",
        "Compare 1.2.3 with 2.0, and ½ with 0.5…",
        "Translate 'la clave del éxito'",
        "a key is pressed; the salt is passed",
        "Solve x^2 + y^2 = 25",
        "東京の人口は",
    ],
)
def test_plain_text_stays_as_it_is(text: str):
    assert redacted(text) == text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("use sk-proj-abcdefghijklmnop123456", True),
        ("AKIAIOSFODNN7EXAMPLE", True),
        ("postgres://ada:pw@host/db", True),
        ("-----BEGIN PRIVATE KEY-----", True),
        ("Basic YWRhOmxvdmVsYWNl=", True),
        ("the password is swordfish", False),
        ("accounts/fireworks/models/llama-v3p1-405b-instruct", False),
        ("the bearer of bad news", False),
        ("f47ac10b-58cc-4372-a567-0e02b2c3d479", False),
    ],
)
def test_a_key_without_doubt_is_told_from_what_only_may_be_one(text: str, wanted: bool):
    assert has_key(text) is wanted
