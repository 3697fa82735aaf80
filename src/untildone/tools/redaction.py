"""Takes what may be a secret or personal data out of a text that will be shown to others.

It goes by how things look and what they are called, so it takes out too much rather than too
little. What looks like nothing, such as a name, a street or a password of plain words that nobody
calls one, stays.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_WORD: Final = r"(?<![A-Za-z0-9])"
"""Where a word of ASCII letters begins; ``\\b`` sees none between a Han character and ``sk-``."""
_KEY: Final = r"[A-Za-z0-9_+/=.~-]"
_RUN: Final = r"(?<![A-Za-z0-9_+/=.~-])"
"""Where a run of key characters begins, so that each is looked at once."""

_PASSWORDS: Final = (
    r"pass(?:word|wd|phrase|code|wort|e)?s?|pwd?|psw|kennwort|mots?[ _]de[ _]passe|mdp"
    r"|contrase[nñ]as?|clave|senhas?|palavra-passe|parola|has[lł]o|heslo|jelsz[oó]|l[oö]senord"
    r"|lozinka|salasana|adgangskode|passord|wachtwoord|[sş]ifre|парол[ья]|κωδικός|סיסמה"
    r"|كلمة (?:المرور|السر)|पासवर्ड|パスワード|暗証番号|密码|密碼|口令|비밀번호|암호"
    r"|mật khẩu|รหัสผ่าน|kata sandi"
)
_OTHERS: Final = (
    r"secrets?|tokens?|credentials?|sig(?:nature)?|geheimnis|zugangsdaten|jeton|токен|секрет|令牌"
    r"|(?:api|access|account|auth|client|encryption|license|master|private|secret|shared|signing"
    r"|subscription)(?:[ _-]?access)?[ _-]?key|clé|schl[uü]ssel|llave|chave|ключ|密钥|密鑰"
)
_PHRASES: Final = (
    r"pass ?phrase|(?:seed|recovery|secret) (?:phrase|words|code)|mnemonic"
    r"|(?:proxy-)?authorization|(?:set-)?cookies?"
)
"""What has a value of several words."""
_NAMED: Final = rf"(?:{_PHRASES}|{_PASSWORDS}|{_OTHERS})"
_LONG_NAMES: Final = r"(?:passw(?:or)?d|passwort|secret|token|apikey|passphrase|credential)"
"""Names that stand at the end of longer ones, such as ``PGPASSWORD``."""
_IS: Final = (
    r"(?:[\"'`\]\)*_]{0,3}\s{0,9}(?:[=-]>|[:=]{1,3}|→|\|)\s{0,9}"
    r"|(?:\s{1,9}[^\s:=]{1,30}){0,4}?\s{1,9}"
    r"(?:is|are|was|were|be|ist|war|lautet|sind|est|es|era|sono|é|è|jest|это|는|은)\s{1,9}"
    r"|\s{0,9}(?:是|为|為|は)\s{0,9})"
)
_QUOTED: Final = r"(?:\"[^\"\n]{0,200}\"?|'[^'\n]{0,200}'?|`[^`\n]{0,200}`?)"
_NEXT: Final = r"(?!(?:and|or|then|to|for|in|on|with|und|et|y|e|и|use)\s)"
_VALUE: Final = rf"(?:{_QUOTED}|(?:(?:basic|bearer|digest|token)\s{{1,9}})?[^\s<]+)"
_SAID: Final = rf"(?:{_QUOTED}|[^\s<]*[^\s<,;.!?](?:[ \t]{{1,3}}{_NEXT}[^\s,;:=<]+){{0,11}}\S*|\S+)"
"""A value after "is" or a colon and a gap: words up to the next comma, since phrases are secrets
too."""

_BEGINNINGS: Final = (
    r"(?:(?:sk|pk|rk|whsec|gh[opsur]|github_pat|glpat|xox[a-z]|xapp|hf|npm|dop_v1|SG)[._-]"
    r"|(?:shpat|AKIA|ASIA|AIza|ya29|eyJ)[._-]?)"
)
_OUTSIDE: Final = r"\s@<>()\[\]\"',;:"
_AT: Final = r"\s{0,3}[\[({]\s?(?:at|@|ät)\s?[\])}]\s{0,3}"
_DOT: Final = r"\s{0,3}[\[({]\s?(?:dot|\.|punkt|punto|point)\s?[\])}]\s{0,3}"
_PRIVATE_KEY: Final = r"(?s)-----BEGIN [A-Z ]{0,40}-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)"

_RULES: Final = (
    # A private key, to its end or to the end of the text.
    (_PRIVATE_KEY, "[secret]"),
    # user:password@ in an address, also where the password has a slash or an @; what it asks for
    (r"(?<=://)[^\s\"'<>]{1,200}@", "[secret]@"),
    (r"(?<=://)([^\s\"'<>?#]{1,500})[?#][^\s\"'<>]+", r"\1?[secret]"),
    # Options of commands
    (
        (
            r"(?i)(?<!\S)(--?[a-z-]{0,30}(?:pass|pw|secret|token|key)[a-z-]{0,20}[ =])\s{0,3}"
            rf"{_VALUE}"
        ),
        r"\1[secret]",
    ),
    (r"(?<!\S)(-u|--user|--proxy-user)[ =]?[^\s:]{1,99}:\S+", r"\1 [secret]"),
    (r"(?<!\S)-p(?=[^\s-])\S{4,}", "-p[secret]"),
    (r"(?i)\b(sshpass\s{1,9}-p|redis-cli\b[^\n]{0,99}?\s-a)\s{0,9}\S+", r"\1 [secret]"),
    # What is called a password, a token or a key: in XML, by a sign, in words, or right before it
    (rf"(?i)(<[^<>\s]{{0,30}}{_NAMED}[^<>]{{0,60}}>)[^<]+", r"\1[secret]"),
    (rf"(?i){_WORD}({_PHRASES})({_IS})[^\n]+", r"\1\2[secret]"),
    (rf"(?i){_WORD}({_PHRASES})[ \t]{{1,3}}(?=\S*[0-9=])[^\n]+", r"\1 [secret]"),
    (rf"(?i)({_LONG_NAMES}[\"'`]?=){_VALUE}", r"\1[secret]"),
    (rf"(?i){_WORD}({_NAMED}[\"'`]?={{1,2}}){_VALUE}", r"\1[secret]"),
    (rf"(?i){_WORD}({_NAMED})({_IS}){_SAID}", r"\1\2[secret]"),
    (
        (
            rf"(?i){_WORD}({_NAMED}[\s,;:\"'`(\[{{*-]{{1,5}})"
            r"(?=[^\s\"'`)\]},;]*[0-9!$%^&*#])[^\s\"'`)\]},;]+"
        ),
        r"\1[secret]",
    ),
    (rf"(?i){_WORD}({_NAMED}\s{{1,3}}){_QUOTED}", r"\1[secret]"),
    (
        (
            rf"(?i){_WORD}(pin|cvv2?|cvc2?|otp|tan|ssn|code|passport|iban)"
            r"(\W{1,9}(?:(?:is|no|nr)\W{1,9})?)(?=[A-Z]{0,3}[0-9])[A-Z0-9](?:[ -]?[A-Z0-9]){2,33}\b"
        ),
        r"\1\2[number]",
    ),
    (
        rf"(?i){_WORD}((?:bearer|basic)\s{{1,9}})(?=[A-Za-z_+/.~-]*[0-9=]){_KEY}{{3,}}",
        r"\1[secret]",
    ),
    (rf"{_WORD}(Bearer\s{{1,9}})(?=[a-z]*[A-Z]){_KEY}{{6,}}", r"\1[secret]"),
    # Addresses of people and machines
    (rf"[^{_OUTSIDE}]{{1,100}}@[^{_OUTSIDE}.]{{1,100}}\.[^{_OUTSIDE}]+", "[email]"),
    (
        (
            rf"(?i)[^{_OUTSIDE}]{{1,100}}{_AT}[^{_OUTSIDE}]{{1,100}}"
            rf"(?:{_DOT}[^{_OUTSIDE}]{{1,100}}){{0,4}}"
        ),
        "[email]",
    ),
    (r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5,7}[0-9A-Fa-f]{2}(?![\w:-])", "[address]"),
    (r"(?i)(?<![\w.])[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?![\w.])", "[address]"),
    (
        (
            r"(?<![\w:])(?=[^\s]{0,39}[0-9])(?:(?:[0-9A-Fa-f]{1,4}:){3,7}[0-9A-Fa-f]{1,4}"
            r"|(?:[0-9A-Fa-f]{1,4}:){0,6}:(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{0,4})"
            r"(?:\.[0-9]{1,3}){0,3}(?![\w:])"
        ),
        "[address]",
    ),
    (r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.]?[0-9])", "[address]"),
    # Keys by the beginning that their makers gave them
    (rf"{_WORD}{_BEGINNINGS}{_KEY}{{8,}}", "[secret]"),
    # Long, with letters and digits: hashes, ids, tokens
    (
        rf"{_RUN}(?=[A-Za-z_+/=.~-]*+[0-9])(?=[0-9_+/=.~-]*+[A-Za-z]){_KEY}{{20,}}+",
        "[secret]",
    ),
    (rf"{_WORD}(?=[A-Za-z]*+[0-9])(?=[0-9]*+[A-Za-z])[A-Za-z0-9]{{13,}}+", "[secret]"),
    # Shorter, but in no order that words have
    (
        rf"{_WORD}(?=[a-z0-9]*+[A-Z])(?=[A-Z0-9]*+[a-z])(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{{10,}}+",
        "[secret]",
    ),
    (rf"{_WORD}(?=[0-9]*+[A-Z])(?=(?:[A-Z]*+[0-9]){{2}})[A-Z0-9]{{8,}}+(?![a-z])", "[secret]"),
    (
        (
            r"(?<!\S)(?=[^\sA-Z]*+[A-Z])(?=[^\sa-z]*+[a-z])(?=[^\s0-9]*+[0-9])"
            r"(?=[^\s!@#$%^&*~?]*+[!@#$%^&*~?][^\s])\S{8,}"
        ),
        "[secret]",
    ),
    (rf"{_RUN}[A-Za-z0-9+/]{{40,}}+", "[secret]"),
    # Telephone, card and account numbers, dates
    (r"\+?\d(?:[\s().\u2010-\u2015/_-]{0,3}\d){6,}", "[number]"),
    (r"\d{6,}", "[number]"),
)
_COMPILED: Final = tuple((re.compile(pattern), word) for pattern, word in _RULES)

_KEYS: Final = re.compile(
    rf"{_WORD}{_BEGINNINGS}(?=[A-Za-z_+/=.~-]*+[0-9]){_KEY}{{12,}}"
    rf"|(?i:{_WORD}(?:bearer|basic)\s{{1,9}}(?=[A-Za-z_+/.~-]*+[0-9=]){_KEY}{{6,}})"
    r"|://[^\s/@:]{0,99}:[^\s@/]{1,200}@"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
)


def redacted(text: str) -> str:
    """The text with what looks like an address, a number or a key replaced by a word for it.

    A text in which something was found comes back in Unicode's form NFKC, without characters that
    cannot be seen: otherwise these would hide it.
    """
    plain = _plain(text)
    found = plain
    for pattern, replacement in _COMPILED:
        found = pattern.sub(replacement, found)
    return text if found == plain else found


def has_key(text: str) -> bool:
    """Whether a text holds what is a key without doubt: by its form, not by what it is called."""
    return _KEYS.search(_plain(text)) is not None


def _plain(text: str) -> str:
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    return "".join(char for char in text if unicodedata.category(char) != "Cf")
