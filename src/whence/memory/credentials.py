"""What opens a door, found in text: keys and tokens by their vendors' shapes, assigned passwords, connection strings.

A token has a mark that its vendor gave it so that it can be found, and the mark is looked for first: nearly all texts
have none. What has no mark is found by the name it is assigned to, and only if it looks made up: a word of a
dictionary, a variable or a call is how people write about passwords.
"""

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

Span = tuple[int, int]

# --- tokens by their vendors' shapes --------------------------------------------------------------------------------


class _Token(NamedTuple):
    marks: tuple[str, ...]
    """One of them is in every token of this shape."""
    form: re.Pattern[str]


def _token(marks: str, form: str) -> _Token:
    return _Token(tuple(marks.split()), re.compile(rf"(?<![A-Za-z0-9_])(?:{form})(?![A-Za-z0-9_])"))


_TOKENS = (
    _token(
        "sk-", r"sk-(?:proj|svcacct|admin|None|ant-[a-z0-9]{3,8}|or-v1|lf|litellm)-[\w-]{20,240}"
    ),  # models' vendors
    _token("sk-", r"sk-[A-Za-z0-9]{32,64}"),
    _token("AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    _token("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,255}"),
    _token("github_pat_", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _token(
        "gl", r"gl(?:pat|dt|rt|rtr|ft|cbt|ptt|agent|soat|imt|oas|ffct)-[\w-]{20,64}(?:\.[0-9a-z]{2,4}\.[\w-]{4,20})?"
    ),
    _token("xox", r"xox[abceoprsd]-[A-Za-z0-9-]{10,250}|xoxe\.xox[bp]-[A-Za-z0-9-]{20,250}"),
    _token("xapp-", r"xapp-[0-9]-[A-Z0-9]{8,16}-[0-9]{8,16}-[a-f0-9]{32,80}"),
    _token("hooks.slack.com", r"(?:https://)?hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/]{30,120}"),
    _token("k_live_ k_test_ whsec_", r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{16,200}|whsec_[A-Za-z0-9+/=]{24,80})"),
    _token("AIza", r"AIza[\w-]{35}"),
    _token("ya29.", r"ya29\.[\w.-]{20,300}"),
    _token("GOCSPX-", r"GOCSPX-[\w-]{28}"),
    _token("hf_", r"hf_[A-Za-z0-9]{30,40}"),
    _token("npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("pypi-", r"pypi-AgE[\w-]{50,300}"),
    _token("SG.", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    _token("SK AC", r"(?:SK|AC)[0-9a-f]{32}"),  # Twilio
    _token(":A", r"[0-9]{8,10}:A[\w-]{32,36}"),  # Telegram
    _token("M N O", r"[MNO][\w-]{22,28}\.[\w-]{6,7}\.[\w-]{27,45}"),  # Discord
    _token(
        "/api/webhooks/", r"(?:https://)?(?:\w{3,10}\.)?discord(?:app)?\.com/api/webhooks/[0-9]{15,22}/[\w-]{50,90}"
    ),
    _token("_v1_", r"do[opr]_v1_[0-9a-f]{64}"),
    _token("dapi", r"dapi[0-9a-f]{32}(?:-[0-9])?"),
    _token("v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,200}"),  # Cloudflare's origin
    _token("key-", r"key-[0-9a-f]{32}"),  # Mailgun
    _token("-", r"[0-9a-f]{32}-(?:[0-9a-f]{8}-[0-9a-f]{8}|us[0-9]{1,2})"),  # Mailgun, Mailchimp
    _token("shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _token("ak_ uk_", r"[au]k_[A-Za-z0-9][\w.@-]{0,127}\.[0-9a-f]{12}\.[\w-]{43}"),  # Whence
    _token("gsk_ pcsk_ r8_", r"(?:gsk_[A-Za-z0-9]{40,60}|pcsk_[\w]{40,90}|r8_[A-Za-z0-9]{35,42})"),
    _token(
        "xai- pplx- tvly-",
        r"(?:xai-[A-Za-z0-9]{60,90}|pplx-[A-Za-z0-9]{40,60}|tvly-(?:dev-|prod-)?[A-Za-z0-9-]{28,50})",
    ),
    _token("lsv2_", r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    _token("lin_api_ ntn_ secret_", r"(?:lin_api_[A-Za-z0-9]{32,48}|ntn_[A-Za-z0-9]{40,60}|secret_[A-Za-z0-9]{43})"),
    _token("PMAK- NRAK- HRKU-", r"(?:PMAK-[0-9a-f]{24}-[0-9a-f]{34}|NRAK-[A-Z0-9]{27}|HRKU-[\w-]{30,70})"),
    _token("glsa_ glc_", r"(?:glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[A-Za-z0-9+/=]{40,400})"),
    _token("hvs. hvb. .atlasv1.", r"(?:hv[sb]\.[\w-]{24,300}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,70})"),
    _token("sntry", r"sntry[su]_[A-Za-z0-9+/=_]{40,300}"),
    _token("dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:\w{2,35}\.)?[A-Za-z0-9]{40,44}"),
    _token(
        "dckr_ sbp_ pscale_ rubygems_",
        r"(?:dckr_[po]at_[\w-]{20,40}|sbp_[0-9a-f]{40}|pscale_\w{2,8}_[\w.-]{30,64}|rubygems_[0-9a-f]{48})",
    ),
    _token("sb_secret_ nfp_ fw_", r"(?:sb_secret_[\w-]{31}|nfp_[A-Za-z0-9]{36}|fw_[A-Za-z0-9]{22,24})"),
    _token("ATATT3x ATCTT3x ATBB", r"(?:AT[AC]TT3x[\w=-]{100,400}|ATBB[A-Za-z0-9]{32})"),  # Atlassian
    _token("ATTA", r"ATTA[0-9a-f]{64,80}"),  # Trello
    _token(
        "pat", r"pat(?:[A-Za-z0-9]{14}\.[0-9a-f]{64}|-[a-z]{2}[0-9]-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    ),  # Airtable, HubSpot
    _token("sib-", r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),  # Brevo
    _token("EAA", r"EAA(?:A[\w-]{60}|[A-Za-z0-9]{80,400})"),  # Square, Facebook
    _token("ABSK AKCp", r"(?:ABSK[A-Za-z0-9+/]{100,300}={0,2}|AKCp[A-Za-z0-9]{60,90})"),  # Bedrock, JFrog
    _token("tskey- CFPAT-", r"(?:tskey-[a-z]{3,10}-[A-Za-z0-9]{8,24}-[A-Za-z0-9]{20,60}|CFPAT-[\w-]{43})"),
    _token("fm1_ fm2_ fo1_", r"(?:fm[12]_[A-Za-z0-9+/=_-]{60,2000}|fo1_[\w-]{43})"),  # Fly
    _token("sl.", r"sl\.(?:u\.)?[\w-]{100,1500}"),  # Dropbox
    _token("sk_ fc- jina_", r"(?:sk_[0-9a-f]{48}|fc-[0-9a-f]{32}|jina_[\w-]{60})"),  # ElevenLabs, Firecrawl, Jina
    # Voyage, whose mark begins addresses of pages too, and those have small letters alone.
    _token("pa-", r"pa-(?=[\w-]{0,42}[A-Z])(?=[\w-]{0,42}[a-z])[\w-]{43}"),
    _token("tgp_v1_ re_", r"(?:tgp_v1_[\w-]{43}|re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24})"),  # Together, Resend
    _token("rnd_ napi_ pul- bkua_", r"(?:rnd_[A-Za-z0-9]{28,40}|napi_[a-z0-9]{64}|(?:pul-|bkua_)[0-9a-f]{40})"),
    _token("ops_eyJ", r"ops_eyJ[\w-]{100,4000}"),  # 1Password
    _token("1//0", r"1//0[\w-]{60,200}"),  # Google
    _token("00D", r"00D[A-Za-z0-9]{12,15}![\w.]{60,200}"),  # Salesforce
    _token(
        "hooks.zapier.com webhook.office.com",
        r"(?:https://)?(?:hooks\.zapier\.com/hooks/catch/[0-9]{5,10}/[a-z0-9]{5,10}(?:/[a-z0-9]{5,10}){0,4}/?|[\w-]{1,60}\.webhook\.office\.com/webhookb2/[\w@/-]{60,300})",
    ),
    _token("figd_ sq0", r"(?:figd_[\w-]{36,50}|sq0(?:atp|csp)-[\w-]{22,43})"),
    _token("Q~", r"[\w.~-]{3}[0-9]Q~[\w.~-]{31,34}"),  # Azure's applications
    _token("JQQJ99", r"[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{10,30}"),  # Azure's services
    _token("AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
)

_VALUES = tuple(
    _Token(tuple(marks.split()), re.compile(form, re.IGNORECASE))
    for marks, form in (
        ("AccountKey SharedAccessKey", r"(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{40,90}={0,2})"),
        ("sig=", r"[?&;]sig=([A-Za-z0-9%+/]{40,140}={0,2})"),
        (
            "aws AWS Aws secret Secret SECRET",
            r"(?:aws|secret)[\w .-]{0,40}[\"'`]? ?(?:=>?|:=?|is|\s)\s{0,3}[\"'`]?"
            r"([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=_-])",
        ),
    )
)
"""Of which the first group is the secret."""


_LONG_CHARACTERS = 16
_LONG = re.compile(rf"[\w.:~+/=%-]{{{_LONG_CHARACTERS}}}")
"""What every token and every such value has, and most sentences have not."""
_LONG_WORD = re.compile(rf"(?:\S{{0,{_LONG_CHARACTERS - 1}}}+\s)*+\S{{{_LONG_CHARACTERS}}}")
"""Matches, from its beginning, a text that has one."""


def may_hold_api_keys(text: str) -> bool:
    return _has_long(text) or _is_assigned(text) or any(map(text.__contains__, (*_FLAGS, _ACCOUNT_MARK)))


def api_keys(text: str) -> Iterator[Span]:
    if _has_long(text):
        yield from _tokens(text)
        yield from _authorizations(text)
    yield from _service_accounts(text)
    yield from _assignments(text)


def _has_long(text: str) -> bool:
    # A word as long as that is found quicker than such a run.
    return _LONG_WORD.match(text) is not None and _LONG.search(text) is not None


def _tokens(text: str) -> Iterator[Span]:
    for marks, form in _TOKENS:
        if any(mark in text for mark in marks):
            for match in form.finditer(text):
                if _is_random(match[0]):
                    yield match.span()
    for marks, form in _VALUES:
        if any(mark in text for mark in marks):
            for match in form.finditer(text):
                if _is_random(match[1]) and not match[1].islower():  # A hash has small letters only.
                    yield match.span(1)


def _is_random(token: str) -> bool:
    """A placeholder repeats one sign, and a name has no digits."""
    return _entropy(token) > 2.5 and any(sign.isdigit() for sign in token)


def _entropy(text: str) -> float:
    """Bits a character, as the text's own characters have it."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts)


_ACCOUNT = re.compile(
    r"\{[^{}]{0,400}\"type\"\s{0,4}:\s{0,4}\"service_account\"[^{}]{0,8000}\"private_key\"[^{}]{0,8000}\}"
)


_ACCOUNT_MARK = '"service_account"'


def _service_accounts(text: str) -> Iterator[Span]:
    if _ACCOUNT_MARK in text:
        for match in _ACCOUNT.finditer(text):
            yield match.span()


# --- what is assigned to a telling name -----------------------------------------------------------------------------

_SCHEME = re.compile(
    r"(?<![A-Za-z0-9])(?:Bearer|Basic|Token|ApiKey|Api-Key)(?:\s{1,3}|\s?[:=]\s?)[\"']?([A-Za-z0-9._~+/=-]{16,4000}+)",
    re.IGNORECASE,
)

_LONG_NAMES = (
    r"password|passwd|passphrase|passcode|passwort|kennwort|secret|token|credentials?"
    r"|(?:api|access|auth|secret|account|encryption|signing)[ _.-]?key"
)
_SHORT_NAMES = (
    r"pass|pwd|mot de passe|mdp|contrase[nñ]a|clave|senha|wachtwoord|parola|has[lł]o"
    r"|пароль|密码|密碼|パスワード|비밀번호"
)
_ASSIGNED = re.compile(
    rf"(?:{_LONG_NAMES}|(?<![^\W_])(?:{_SHORT_NAMES}))"
    r"(?:[\"'`*]{0,3}\s{0,3}(?:=>|:=|==?|[:：])\s{0,3}| (?:is|was|lautet|ist|es|est|è|é) )"
    r"[\"'`*]{0,3}([^\s\"'`<>{}]{6,256}+)",
    re.IGNORECASE,
)
_NAMES = (
    *("pass", "pwd", "secret", "token", "credential", "key", "kennwort", "mot de", "mdp", "contrase", "clave", "senha"),
    *("wachtwoord", "parola", "has", "пароль", "密", "パスワード", "비밀번호"),
)
"""Of which one is in every name that something can be assigned to, in small letters."""
_SAYS = re.compile(r"[=:：]| (?:is|was|lautet|ist|es|est|è|é) ", re.IGNORECASE)
"""What stands between a name and its value."""
_ASCII_SAYS = ("=", ":", " is ", " was ", " lautet ", " ist ", " es ", " est ")
"""The same where all signs are ASCII, in small letters. They are found in a tenth of the time."""
_NOT_SECRET = re.compile(r"(?:page|next|sync|continuation|cursor|csrf|pad|eos|bos)[ _.-]?\Z", re.IGNORECASE)
_REACH = 16
_FLAG = re.compile(
    rf"(?<![A-Za-z0-9-])(?:--(?:[a-z]{{1,20}}-){{0,3}}(?:{_LONG_NAMES}|pass|pwd)[ =]|sshpass -p ?"
    r"|curl (?:[^\n]{0,200}? )?(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:)[\"']?([^\s\"'`<>{}]{6,256}+)"
)
_FLAGS = ("--", "sshpass", "curl")
_PLACEHOLDER = re.compile(
    r"\A(?:\$\w{1,100}\Z|%\w{0,100}%?\Z|\[|\*|(?:os|process|env|config|settings|self|this|secrets|vars?|import)\.)"
    r"|\*{3}|x{4}|\.\.\.|…|•|your|example|changeme|placeholder|redacted|dummy|replace|insert|todo",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"[A-Za-z_][\w.]*+[(\[]|(?:[a-z]++[._])*+[a-z]++[0-9]?[,;)]*+|[0-9.,:/-]++[a-z]{0,2}[,;)]*+|https?://.*+"
)
_PASSWORD = re.compile(r"pass|pwd|kenn|mdp|contra|clave|senha|wacht|parola|has|парол|密|パス|비밀", re.IGNORECASE)
_PARAMETER = re.compile(r"&(?:amp;)?[\w.-]{1,40}=")
_ENDS = ".,;:)]"

_MIN_PASSWORD_CHARACTERS = 6
_MIN_SECRET_CHARACTERS = 16
_MIN_SECRET_ENTROPY = 3.0


def _authorizations(text: str) -> Iterator[Span]:
    for match in _SCHEME.finditer(text):
        value = match[1].rstrip(".")
        if _looks_made(value, _MIN_SECRET_CHARACTERS):
            yield match.start(1), match.start(1) + len(value)


def _is_assigned(text: str) -> bool:
    lowered = text.lower()
    says = any(map(lowered.__contains__, _ASCII_SAYS)) if text.isascii() else _SAYS.search(text) is not None
    return says and any(map(lowered.__contains__, _NAMES))


def _assignments(text: str) -> Iterator[Span]:
    for match in _ASSIGNED.finditer(text) if _is_assigned(text) else ():
        name = match[0][: match.start(1) - match.start()]
        value = _value(match[1])
        enough = _MIN_PASSWORD_CHARACTERS if _PASSWORD.search(name) else _MIN_SECRET_CHARACTERS
        called = text[match.start(1) + len(value) :][:1] == "("
        before = text[max(0, match.start() - _REACH) : match.start()]
        if not called and not _NOT_SECRET.search(before) and _looks_made(value, enough):
            yield match.start(1), match.start(1) + len(value)
    for match in _FLAG.finditer(text) if any(map(text.__contains__, _FLAGS)) else ():
        value = _value(match[1])
        if _looks_made(value, _MIN_PASSWORD_CHARACTERS):
            yield match.start(1), match.start(1) + len(value)


def _value(found: str) -> str:
    """Without the punctuation of the sentence, and without the next parameter of an address."""
    return _PARAMETER.split(found, 1)[0].rstrip(_ENDS)


def _looks_made(value: str, enough: int) -> bool:
    """Letters with digits or signs, not a word, a call, a number or a variable, and of some variety."""
    if len(value) < enough or _PLACEHOLDER.search(value) or _CODE.fullmatch(value):
        return False
    letters = any(sign.isalpha() for sign in value)
    others = any(sign.isdigit() for sign in value) or (
        enough < _MIN_SECRET_CHARACTERS and any(sign in "!@#^&*+=?~|" for sign in value)
    )
    return letters and others and _entropy(value) >= (_MIN_SECRET_ENTROPY if enough >= _MIN_SECRET_CHARACTERS else 2.0)


# --- private keys and JSON web tokens -------------------------------------------------------------------------------

_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(r"(?:[A-Za-z0-9+/=:,.\s()-]|\\[nr])*+")
_MAX_KEY_CHARACTERS = 16_384


def may_hold_private_keys(text: str) -> bool:
    return "-----BEGIN " in text


def private_keys(text: str) -> Iterator[Span]:
    """PEM blocks, also with escaped newlines. Of a block that was cut off, what still looks like a part of it."""
    last = 0
    while begin := _BEGIN.search(text, last):
        limit = begin.end() + _MAX_KEY_CHARACTERS
        body = _BODY.match(text, begin.end(), limit)
        end = _END.search(text, begin.end(), limit)
        last = end.end() if end else len(text[: body.end() if body else begin.end()].rstrip())
        last = max(last, begin.end())
        yield begin.start(), last


_JWT = re.compile(r"(?<![A-Za-z0-9_-])eyJ[\w-]{8,4000}+(?:\.[\w-]{0,16000}+){1,4}")


def may_hold_jwts(text: str) -> bool:
    return "eyJ" in text


def jwts(text: str) -> Iterator[Span]:
    for match in _JWT.finditer(text):
        if _is_header(match[0].partition(".")[0]):
            yield match.start(), match.start() + len(match[0].rstrip("."))


def _is_header(encoded: str) -> bool:
    try:
        header = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and ("alg" in header or "typ" in header)


# --- connection strings ---------------------------------------------------------------------------------------------

_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9])(?:jdbc:)?[A-Za-z][A-Za-z0-9+.-]{1,30}+://[^\s:/?#\"'`<>]{0,128}+:([^\s/@\"'`<>]{1,256}+)@"
    r"[^\s\"'`<>]{1,1000}+"
)
_JDBC = re.compile(
    r"(?<![A-Za-z0-9])jdbc:[a-z0-9:]{2,40}(?://|@)[^\s\"'`<>]{1,400}?[?&;](?:password|pwd)=([^\s&;\"'`<>]{1,256})[^\s\"'`<>]{0,400}",
    re.IGNORECASE,
)
_LIBPQ = re.compile(
    r"(?<![A-Za-z0-9_])(?:(?:host|hostaddr|port|dbname|user|password|sslmode|sslrootcert|connect_timeout|application_name"
    r"|target_session_attrs|options) ?= ?(?:'[^'\n]{0,200}+'|[^\s'\"`;&]{1,200}+)(?:[ \t]{1,3}|(?![ \t]))){2,20}"
)
_LIBPQ_SECRET = re.compile(r"password ?= ?('[^']{0,200}'|\S{1,200})")
_ADO_KEYS = (
    r"server|data source|address|addr|host|initial catalog|database|user id|uid|user|username|password|pwd|port|encrypt"
    r"|trustservercertificate|integrated security|driver|ssl ?mode|pooling|timeout|connection timeout"
    r"|multipleactiveresultsets|persist security info|application name|defaultendpointsprotocol"
    r"|accountname|accountkey|endpointsuffix|endpoint|sharedaccesskeyname|sharedaccesskey|entitypath|charset|provider|dbq|accountendpoint|blobendpoint"
    r"|max pool size|min pool size|search path|sslmode|command timeout"
)
_ADO = re.compile(
    rf"(?<![A-Za-z0-9_])(?:(?:{_ADO_KEYS}) ?= ?(?:\{{[^}}\n]{{0,200}}+\}}|[^;\n\"'`]{{0,300}}+);\s?){{1,24}}+"
    rf"(?:(?:{_ADO_KEYS}) ?= ?[^;\s\"'`]{{1,300}}+)?",
    re.IGNORECASE,
)
_ADO_SECRET = re.compile(r"(?:password|pwd|accountkey|sharedaccesskey) ?= ?([^;\s]{1,300})", re.IGNORECASE)
_HIDDEN = re.compile(r"[$%]?[{<\[(].*+|\$\w++|\*++|x{3,}+|\.{3}|…|redacted", re.IGNORECASE)


def may_hold_connection_strings(text: str) -> bool:
    return "=" in text or ":" in text


def connection_strings(text: str) -> Iterator[Span]:
    """With a password in them; one that only names a variable is a template."""
    forms = [_ADDRESS, _JDBC] if "://" in text or "jdbc:" in text.lower() else []
    for form in forms:
        for match in form.finditer(text):
            if not _HIDDEN.fullmatch(match[1]):
                yield match.start(), match.start() + len(match[0].rstrip(_ENDS + "!?*_"))
    if "=" in text:
        yield from _keyword_strings(text)


def _keyword_strings(text: str) -> Iterator[Span]:
    for form, secret in ((_LIBPQ, _LIBPQ_SECRET), (_ADO, _ADO_SECRET)):
        for match in form.finditer(text):
            found = match[0].rstrip()
            value = secret.search(found)
            if value and not _HIDDEN.fullmatch(value[1].strip("'")) and found.count("=") > 1:
                yield match.start(), match.start() + len(found.rstrip(".,"))
