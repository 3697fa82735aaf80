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
    r"pass(?:words?|wd|phrases?|codes?|w[oö]rte?r?)|pwd?|psw|kennwort|mots?[ _]de[ _]passe|mdp"
    r"|contrase[nñ]as?|senhas?|palavra-passe|has[lł]o|heslo|jelsz[oó]|l[oö]senord"
    r"|lozinka|salasana|adgangskode|passord|wachtwoord|[sş]ifre|парол[ья]|κωδικός|סיסמה"
    r"|كلمة (?:المرور|السر)|पासवर्ड|パスワード|暗証番号|密码|密碼|口令|비밀번호|암호"
    r"|mật khẩu|รหัสผ่าน|kata sandi|zugangsdaten|credentials?"
    r"|(?:api|access|account|auth|client|encryption|license|private|secret|signing"
    r"|subscription)(?:[ _-]?access)?[ _-]?key"
)
"""Names that mean a secret in prose too."""
_OTHERS: Final = (
    r"pass|secrets?|token|geheimnis|jeton|токен|секрет|令牌|clave|parola"
    r"|(?:master|shared)[ _-]?key|clé|schl[uü]ssel|llave|chave|ключ|密钥|密鑰|(?:set-)?cookie"
)
"""Names that mean other things as well, so that a sign must say what they are."""
_SESSIONS: Final = r"sig(?:nature)?|[a-z]{0,9}sess(?:ion)?[_-]?id|sid"
"""Names of secrets where an equals sign says so."""
_PHRASES: Final = (
    r"pass ?phrase|(?:seed|recovery|secret) (?:phrase|words|code)|mnemonic(?: phrase)?"
)
"""What has a value of several words."""
_IN_NAMES: Final = (
    r"(?:(?i:passw(?:or)?d|passwort|passphrase|secret|token|credentials?"
    r"|(?:api|access|account|auth|client|encryption|private|secret|signing|subscription)[_-]?key)"
    r"|(?<=[a-z0-9])(?:Pass|Pwd|Pw))"
    r"(?:[_-]?(?i:[0-9]{1,2}|base|value|text|plain|hash|confirm(?:ation)?|old|new|prod|dev|test"
    r"|live|root|admin|again|repeat)){0,2}"
)
"""How longer names end, such as ``PGPASSWORD`` and ``dbPass``."""
_SIGN: Final = (
    r"[\"'`\]\)*_]{0,3}\s{0,9}(?:[=-]>|:=|[:=]{1,3}|→|\|)\s{0,9}"
    r"(?:[>|][+-]?[ \t]{0,9}\n\s{0,19}|-\s{1,9})?"
)
"""What stands between a name and a value in a notation, also a block or a list in YAML."""
_IS: Final = (
    r"(?:,?(?:\s{1,9}[^\s:=]{0,29}[^\s:=.?!;]){0,4}?\s{1,9}"
    r"(?:is|are|was|were|be|ist|war|lautet|sind|est|es|era|sono|é|è|jest|это|는|은)\s{1,9}"
    r"|\s{0,9}(?:是|为|為|は|는|은)\s{0,9})"
)
_QUOTED: Final = (
    r"(?:'{3}[^']{0,200}'{3}|\"{3}[^\"]{0,200}\"{3}"
    r"|\"[^\"\n]{0,200}\"?|'[^'\n]{0,200}'?|`[^`\n]{0,200}`?)"
)
_NEXT: Final = r"(?!(?:and|or|then|to|for|in|on|with|und|et|y|e|и|use)\s)"
_SCHEME: Final = r"(?:(?:basic|bearer|digest|token|negotiate|apikey)\s{1,9})"
_VALUE: Final = rf"(?!\[secret\])(?:{_QUOTED}|{_SCHEME}?[^\s<]+)"
_SAID: Final = (
    rf"(?!\[secret\])(?:{_QUOTED}"
    rf"|[^\s<]*[^\s<,;.!?](?:[ \t]{{1,3}}{_NEXT}[^\s,;:=<]+){{0,11}}\S*|\S+)"
)
"""A value after "is" or a colon and a gap: words up to the next comma, since phrases are secrets
too."""
_END: Final = r"(?=[\s,;.:!?)]|\Z)"
_NO_VALUE: Final = (
    r"(?!(?:(?:always|already|also|still|just|only|often|never|not|no|too|very|so|being|been|to"
    r"|it|this|that|there|what|why|how|where|when|who|which|because|if|due|more|less|most|the same"
    r"|at|on|by|for|from|of|part|as|up|out|about|in|zu|nicht)"
    r"|accepted|allowed|asked|available|bad|better|blank|broken|cached|case-sensitive|changed"
    r"|checked|compromised|correct(?=[?.!,]|\s{0,9}\Z)|created|denied|deprecated|different|disabled"
    r"|displayed|empty|enabled|encrypted|enough|enforced|entered|exposed|expired|falsch|forgotten"
    r"|found|generated|given|going|good|hard|hashed|hidden|important|incorrect[ao]?|invalid|kept"
    r"|known|leaked|limited|logged|long|longer|lost|mandatory|masked|missing|necessary|needed|null"
    r"|optional|passed|printed|protected|read|recommended|rejected|required|reset|rotated|safe"
    r"|salted|saved|secure|sent|set|shared|short|shorter|shown|sicher|something|sound|stolen|stored"
    r"|strong|supported|transmitted|typed|undefined|unique|unknown|used|useful|valid|validated"
    rf"|vergessen|verified|visible|weak|working|written|wrong){_END})"
)
"""What is said of passwords in general."""
_PROSE: Final = (
    r"(?!(?:an?|the|one|what|why|how|who|whose|which|when|where|is|are|does|do|can|it|this|that"
    r"|explain|describe|translate|write|tell|list|compare|a|un|une|ein|eine|der|die|das|el|la"
    r"|[^\s\"'`]{1,30}\s{1,3}of)\s)"
)
"""Where a colon begins a sentence, not a value."""
_MIXED: Final = r"(?=[^\s\"'`)\]},;]{0,200}[0-9!$%^&*#])"

_BEGINNINGS: Final = (
    r"(?:(?:sk|pk|rk|whsec|gh[opsur]|github_pat|glpat|xox[a-z]|xapp|hf|npm|dop_v1|SG)[._-]"
    r"|(?:shpat|AKIA|ASIA|AIza|ya29|eyJ)[._-]?)"
)
_READABLE: Final = (
    r"(?:[/_.=~+-]|(?>(?:[A-Z]{0,8}[a-z]{0,18}(?:[A-Z][a-z]{2,14}){0,6}[0-9]{0,4}[A-Za-z]{0,2}"
    r"|[0-9]{1,5}[A-Za-z]{0,2}|[0-9]{1,3}x[0-9]{1,3}[A-Z]|20[12][0-9]{5}"
    r"|(?:[a-z][0-9]{1,2}){2,3}[a-z]?)(?![A-Za-z0-9])))"
)
"""A word, a version or a year in a path or in the name of a model."""
_UNREADABLE: Final = rf"(?!(?:{_READABLE}){{1,60}}+(?!{_KEY}))"
_OUTSIDE: Final = r"\s@<>()\[\]\"',;:"
_AT: Final = r"\s{0,3}[\[({]\s?(?:at|@|ät)\s?[\])}]\s{0,3}"
_DOT: Final = r"\s{0,3}[\[({]\s?(?:dot|\.|punkt|punto|point)\s?[\])}]\s{0,3}"
_PRIVATE_KEY: Final = r"(?s)-----BEGIN [A-Z ]{0,40}-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)"
_HARMLESS: Final = (
    r"(?!(?i:[a-z_-]{0,20}(?:key|token|sig|pass|pw|secret|auth|code|session|sid|credential|user"
    r"|mail|jwt|nonce|hash)))[A-Za-z_-]{1,20}=(?:[0-9]{1,5}|[a-z]{1,12}(?:[-+][a-z]{1,12}){0,8})"
    r"(?![^\s\"'<>&#])"
)
"""A parameter of an address that may be shown: a number or words under a name that is none."""

_RULES: Final = (
    # A private key, to its end or to the end of the text.
    (_PRIVATE_KEY, "[secret]"),
    # user:password@ in an address, also where the password has a slash or an @; what it asks for
    (
        r"(?<=://)(?:[^\s\"'<>/@:]{0,99}:(?![0-9]{2,5}/)[^\s\"'<>]{1,200}|[^\s\"'<>/@]{1,200})@",
        "[secret]@",
    ),
    (
        (
            rf"(?<=://)([^\s\"'<>?#]{{1,500}})(?!\?{_HARMLESS}(?:&{_HARMLESS}){{0,20}}"
            r"(?:#[a-z-]{1,40})?(?![^\s\"'<>]))(?!#[A-Z]?[a-z]{1,20}(?:[_-][a-z]{1,20}){0,9}(?![^\s\"'<>]))"
            r"[?#][^\s\"'<>]+"
        ),
        r"\1?[secret]",
    ),
    # Options of commands
    (
        (
            r"(?i)(?<!\S)(--?(?:[a-z]{1,20}-){0,4}"
            r"(?:[a-z]{0,12}(?:pass(?:word|wd|phrase)?|pwd|secret|token)|pw|(?:api|auth|access)?key)"
            rf"(?:-(?!file|path|length|policy)[a-z]{{1,20}})?[ =])\s{{0,3}}{_VALUE}"
        ),
        r"\1[secret]",
    ),
    (r"(?<!\S)(-u|--user|--proxy-user)[ =]?[^\s:]{1,99}:\S+", r"\1 [secret]"),
    (r"(?<!\S)-p(?=[^\s-]*[0-9])\S{4,}", "-p[secret]"),
    (r"(?i)\b((?:mysql|maria|sshpass)\S{0,20}\s[^\n]{0,99}?(?<!\S)-p)(?=[^\s-])\S+", r"\1[secret]"),
    (
        (
            r"(?i)\b(sshpass\s{1,9}-p|redis-cli\b[^\n]{0,99}?\s-a|docker login\b[^\n]{0,99}?\s-p)"
            r"\s{0,9}\S+"
        ),
        r"\1 [secret]",
    ),
    # What is called a password, a token or a key: in XML, by a sign, in words, or right before it
    (
        rf"(?i)(<[^<>\s]{{0,30}}(?:{_PASSWORDS}|{_OTHERS})(?:\s[^<>]{{0,60}})?>)[^<]+",
        r"\1[secret]",
    ),
    (
        (
            rf"((?:{_IN_NAMES}|{_WORD}(?i:{_PASSWORDS}|{_OTHERS}))[\"'`]?[\s,;]{{1,20}}"
            r"(?:\{?[\"']?(?i:value|content|default|val|data)[\"']?\s{0,9}[:=]\s{0,9}))"
            rf"(?:{_QUOTED}|[^\s<]+)"
        ),
        r"\1[secret]",
    ),
    (
        (
            r"((?i:value)[\"']?\s{0,9}[:=]\s{0,9})"
            rf"{_QUOTED}([\s,]{{1,20}}[\"']?(?i:name|key|id|type)[\"']?\s{{0,9}}[:=]\s{{0,9}}[\"']?"
            rf"[\w.-]{{0,30}}?(?:{_IN_NAMES}|{_WORD}(?i:{_PASSWORDS}|{_OTHERS}))[\"'\s])"
        ),
        r"\1[secret]\2",
    ),
    (rf"(?i){_WORD}({_PHRASES})({_SIGN}|{_IS}{_NO_VALUE})[^\n]+", r"\1\2[secret]"),
    (rf"(?i){_WORD}({_PHRASES})[ \t]{{1,3}}(?=\S{{0,200}}[0-9=])[^\n]+", r"\1 [secret]"),
    (
        (
            rf"(?i){_WORD}((?:proxy-)?authorization{_SIGN})"
            rf"(?:{_SCHEME}[^\n]+|{_PROSE}{_VALUE}(?=\s{{0,9}}(?:\Z|[\n,;])))"
        ),
        r"\1[secret]",
    ),
    (rf"(?i){_WORD}((?:set-)?cookies?(?:{_SIGN}|\s{{1,3}}))(?=\S{{0,200}}=)[^\n]+", r"\1[secret]"),
    (rf"({_IN_NAMES}[\"'`]?(?:={{1,2}}|:(?=\S))){_VALUE}", r"\1[secret]"),
    (rf"(?i){_WORD}((?:{_PASSWORDS}|{_OTHERS}|{_SESSIONS})[\"'`]?={{1,2}}){_VALUE}", r"\1[secret]"),
    (rf"(?i){_WORD}({_PASSWORDS})({_SIGN}{_PROSE}){_SAID}", r"\1\2[secret]"),
    (rf"({_IN_NAMES})({_SIGN})(?i:{_PROSE}){_VALUE}", r"\1\2[secret]"),
    (rf"(?i){_WORD}({_OTHERS})({_SIGN}{_PROSE}){_VALUE}", r"\1\2[secret]"),
    (rf"(?i)(?<!\ba ){_WORD}({_PASSWORDS})({_IS}{_NO_VALUE}){_SAID}", r"\1\2[secret]"),
    (
        rf"(?i){_WORD}({_OTHERS})({_IS})(?:{_MIXED}|(?={_QUOTED})){_VALUE}",
        r"\1\2[secret]",
    ),
    (
        (
            r"(?i)\b((?:the|my|our|your|his|her|its|their)[ _](?:secret|token) (?:is|was) )"
            rf"{_NO_VALUE}[^\s,;.!?]{{4,}}(?=[,;.!?]?\s{{0,3}}(?:\Z|\n))"
        ),
        r"\1[secret]",
    ),
    (
        (
            r"(?i)\b((?:set|sets|setting|reset|change|changed|changes|update|updated|make|switch)"
            rf"\s(?:\S{{1,20}}\s){{0,3}}(?:(?:{_PASSWORDS})(?:\s\S{{1,20}}){{0,3}}?|{_OTHERS})"
            rf"\s(?:to|from)\s){_NO_VALUE}{_VALUE}(\sto\s\S+)?"
        ),
        r"\1[secret]",
    ),
    (
        (
            rf"(?i){_WORD}((?:{_PASSWORDS})\s(?:(?:is|was|has|had|been|got|set|changed|reset"
            rf"|updated)\s){{1,4}}to\s(?:be\s)?){_NO_VALUE}{_VALUE}"
        ),
        r"\1[secret]",
    ),
    (
        (
            rf"(?i){_WORD}((?:{_PASSWORDS})[\s,;:\"'`(\[{{*-]{{1,5}})"
            rf"{_MIXED}[^\s\"'`)\]}},;]+"
        ),
        r"\1[secret]",
    ),
    (
        (
            rf"(?i){_WORD}((?:{_OTHERS})[\s,;:\"'`(\[{{*-]{{1,5}})(?=\S{{0,200}}[a-z])"
            rf"{_MIXED}[^\s\"'`)\]}},;]{{4,}}"
        ),
        r"\1[secret]",
    ),
    (rf"(?i){_WORD}((?:{_PASSWORDS})\s{{1,3}}){_QUOTED}", r"\1[secret]"),
    (
        rf"(?i)(?<!unexpected ){_WORD}((?:{_OTHERS})\s{{1,3}})(?=.[^\"'`\s]{{6}}){_QUOTED}",
        r"\1[secret]",
    ),
    (
        (
            rf"(?i){_WORD}(pin|cvv2?|cvc2?|otp|tan|ssn|passport|iban"
            r"|(?:security|verification|confirmation|access|auth|login|backup|door|sms|2fa) code"
            r"|(?:my|the|your) code(?= (?:is|was)))"
            r"(\W{1,9}(?:(?:is|was|no|nr)\W{1,9})?)(?=[A-Z]{0,3}[0-9])"
            r"(?![0-9]{1,2}(?![0-9A-Z])\s{1,3}[a-z])[A-Z0-9](?:[ -]?[A-Z0-9]){2,33}\b"
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
            r"(?<![\w:])(?=[0-9A-Fa-f:]{6})(?=[A-Fa-f:]{0,39}[0-9])"
            r"(?:(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}"
            r"|(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}|(?:[0-9A-Fa-f]{1,4}:){2,7}:"
            r"|:(?::[0-9A-Fa-f]{1,4}){2,7})"
            r"(?:\.[0-9]{1,3}){0,3}(?![\w:])"
        ),
        "[address]",
    ),
    (r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.]?[0-9])", "[address]"),
    # Keys by the beginning that their makers gave them
    (rf"{_WORD}{_BEGINNINGS}{_KEY}{{8,}}", "[secret]"),
    # Long, with letters and digits: hashes, ids, tokens
    (r"(?i)(?<![\w-])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![\w-])", "[secret]"),
    (
        (
            rf"{_RUN}(?=[A-Za-z_+/=.~-]*+[0-9])(?=[0-9_+/=.~-]*+[A-Za-z]){_UNREADABLE}"
            rf"{_KEY}{{20,}}+"
        ),
        "[secret]",
    ),
    (rf"{_WORD}(?=[A-Za-z]*+[0-9])(?=[0-9]*+[A-Za-z])[A-Za-z0-9]{{13,}}+", "[secret]"),
    # Shorter, but in no order that words have
    (
        rf"{_WORD}(?!0x[0-9A-F]{{1,8}}(?![A-Za-z0-9]))(?=[a-z0-9]*+[A-Z])(?=[A-Z0-9]*+[a-z])(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{{10,}}+",
        "[secret]",
    ),
    (
        (
            rf"{_WORD}(?!0x)(?=[0-9]*+[A-Z])(?=(?:[A-Z]*+[0-9]){{2}})(?!(?:ISO|RFC|CVE|IEEE)[0-9])"
            r"[A-Z0-9]{8,}+(?![a-z])"
        ),
        "[secret]",
    ),
    (
        (
            r"(?<!\S)(?=[^\sA-Z]*+[A-Z])(?=[^\sa-z]*+[a-z])(?=[^\s0-9]*+[0-9])"
            r"(?=[^\s!@#$%^&*~?]*+[!@#$%^&*~?][^\s])(?!https?://)\S{8,}"
        ),
        "[secret]",
    ),
    (rf"{_RUN}{_UNREADABLE}[A-Za-z0-9+/]{{40,}}+", "[secret]"),
    # Telephone, card and account numbers, dates; no number of a paper or of an error
    (
        (
            r"(?!20[12][0-9]-[01][0-9]-[0-3][0-9](?![0-9]))(?<![0-9])(?<!0x)(?<!0X)(?<!CVE-)"
            r"(?<!arxiv[ :])(?<!arXiv[ :])(?<!ArXiv[ :])(?<!arxiv\.org/(?:abs|pdf)/)"
            r"(?!(?<=[a-z0-9]-)20[12][0-9](?:0[1-9]|1[0-2])[0-3][0-9](?![0-9]))"
            r"(?:(?:\+|(?<!\+)(?=[0-9]))\d(?:[\s().\u2010-\u2015/_-]{0,3}\d){6,}|\d{6,})"
        ),
        "[number]",
    ),
)
_COMPILED: Final = tuple((re.compile(pattern), word) for pattern, word in _RULES)

_KEYS: Final = re.compile(
    rf"{_WORD}{_BEGINNINGS}(?=[A-Za-z_+/=.~-]{{0,200}}+[0-9]){_KEY}{{12}}"
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
