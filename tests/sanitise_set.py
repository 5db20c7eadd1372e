"""The labelled set of the sanitiser: sentences with invented values, and sentences that must stay as they are.

`python tests/sanitise_set.py` prints precision and recall of every category, on both halves. A sentence with all
its values is in one half only: rules are tuned on `dev`, and `held-out` says what that is worth.
"""

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Literal, NamedTuple

import sanitise_values as values
from sanitise_negatives import NEGATIVES
from sanitise_traces import TRACE_DUMP
from whence.memory.sanitise import Category, Finding, findings_in

Half = Literal["dev", "held-out"]

KINDS: dict[str, tuple[Category, values.Make]] = {
    name: (category, make)
    for category, makes in (
        ("email", values.EMAIL),
        ("phone", values.PHONE),
        ("card", values.CARD),
        ("iban", values.IBAN),
        ("national_id", values.NATIONAL_ID),
        ("api_key", values.API_KEY | values.ASSIGNED),
        ("private_key", values.PRIVATE_KEY),
        ("jwt", values.JWT),
        ("connection_string", values.CONNECTION_STRING),
        ("trace_dump", TRACE_DUMP),
    )
    for name, make in makes.items()
}

ANYWHERE: dict[str, list[str]] = {
    "email": [
        "You can reach me at {} after lunch.",
        "Contact: {}, office 4.12",
        "Von: {}\nBetreff: Rechnung 2024-118",
        "user={} action=login ok",
        '{{"customer": {{"email": "{}", "plan": "pro"}}}}',
        '<a href="mailto:{}">write us</a>',
        "Mi correo es {}.",
        "Écris-moi à {} stp",
        "Cc: Anna <{}>; subject: renewal",
        "ユーザー：{}（東京）",
    ],
    "phone_intl": [
        "Call me on {} tomorrow.",
        "Tel.: {}",
        "contact {{name: 'Ann', phone: '{}'}}",
        "Mein neues Handy: {}, bitte notieren",
        "El cliente pidió que le llamen al {}.",
        "WhatsApp {} | ext 12",
        "She moved, new number {} since May",
        "2026-03-01 10:00:02 INFO sms queued to={} provider=acme",
        "{} is the support line",
    ],
    "phone_us": [
        "My cell is {}.",
        "Fax {} or email",
        "{} - ask for Dana",
        "You can text {} any time",
        "caller_id={} duration=42s",
        "Customer called from {} about the refund",
    ],
    "phone_fr": ["Mon portable : {}", "Rappelez-moi au {} après 18h", "{} (bureau)"],
    "phone_gb": ["Ring me on {} please", "Mobile: {}", "The surgery's number is {}."],
    "phone_jp": ["電話は{}です", "Tel {} (Tokyo office)", "連絡先: {}"],
    "phone_br": ["Meu celular é {}", "Ligue para {} até as 18h", "Contato: {}"],
    "phone_de": ["Telefon: {}", "Ruf mich unter der Nummer {} an", "Handynummer {}, ab 17 Uhr"],
    "phone_plain": ["phone: {}", '{{"mobile": "{}"}}', "My phone number is {}", "Teléfono {}", "手机 {}"],
    "card": [
        "Please charge {} for the renewal.",
        "card_number={} exp=04/29",
        "Meine Kreditkarte {} wurde abgelehnt",
        "I gave them my card: {}, cvv 123",
        '{{"pan": "{}", "amount": 1299}}',
        "La tarjeta {} está bloqueada",
        "payment failed for {} at 10:22",
        "{} 04/29 J. Smith",
    ],
    "iban": [
        "Please wire it to {} by Friday.",
        "IBAN: {}",
        "Meine Bankverbindung ist {}, danke",
        "refund_account={} status=open",
        "Kontonummer {} BIC DEUTDEFF",
        "Virement sur {} svp",
        '"iban":"{}"',
        "Use account {}\nThanks",
        "Pay {} PLEASE ASAP TODAY",
    ],
    "api_key": [
        "Use {} for the staging calls.",
        "export SERVICE_KEY={}",
        'client = Client("{}")',
        "I rotated it, the new one is {}.",
        "curl -H 'X-Api-Key: {}' https://api.example.com/v1",
        '{{"token":"{}"}}',
        "Der Schlüssel lautet {}",
        "2026-04-01 ERROR auth failed for key {} (403)",
        "# .env\nKEY={}\nDEBUG=1",
        "git clone failed with {}, why?",
        "mi clave: {}",
    ],
    "private_key": [
        "Here is the key:\n{}\nplease add it",
        "{}",
        'key = """{}"""\nprint(1)',
        "deploy key below\n\n{}",
        "secrets.yaml:\n{}\n",
    ],
    "pem_escaped": ['{{"private_key": "{}\\n", "id": 4}}', 'PRIVATE_KEY="{}"'],
    "jwt": [
        "the cookie had {} in it",
        "Authorization: Bearer {}",
        "token={}&next=/home",
        '{{"access_token": "{}"}}',
        "I pasted {} into the debugger",
        "Session: {}.",
        "curl -H 'Authorization: Bearer {}' https://api.example.com",
        "id_token was {} yesterday",
        "GET /cb?id_token={} 302",
        "ws://host/socket?jwt={}",
        "Das Token {} ist abgelaufen",
        "X-Amzn-Oidc-Data: {}",
        "expired: {}, please renew",
        "localStorage.auth = '{}'",
        "Mon jeton : {}",
        "kubectl config set-credentials me --token={}",
    ],
    "connection_string": [
        "We connect with {} in staging.",
        "DATABASE_URL={}",
        'engine = create_engine("{}")',
        "url: {}\nretries: 3",
        "Die Verbindung ist {}",
        "it fails: could not connect to '{}'",
        "- name: DSN\n  value: {}\n",
        "`{}`",
        "Usa {} para conectarte",
    ],
    "trace_dump": [
        "{}",
        "It failed again:\n{}\nWhat should I do?",
        "Log from the worker\n\n{}\n\nIt happens every night.",
        "```\n{}\n```",
        "Voici l'erreur :\n{}",
        "2026-03-01 10:00:00 ERROR job failed\n{}",
    ],
    "trace_python_escaped": ['{{"level":"error","exc_info":"{}","logger":"app"}}', '{{"message":"boom","stack":"{}"}}'],
}
"""Sentences for all kinds of a category, or for one kind. `{}` is the value."""

SAID: dict[str, list[str]] = {
    "us_ssn": [
        "My SSN is {}.",
        "Social Security Number: {}",
        "applicant {} approved",
        "ssn={} dob=1980-02-01",
        "He typed {} into the chat",
    ],
    "us_ssn_solid": ["SSN {}", "social security no {}", '{{"ssn": "{}"}}'],
    "gb_nino": ["My NI number is {}", "Employee {} starts Monday", "NINO: {}"],
    "gb_nino_solid": ["National Insurance number {}", "nino={}", "NI no. {}"],
    "gb_nhs": ["NHS number {}", "Patient, NHS no: {}, referred"],
    "de_steuer": ["Meine Steuer-ID ist {}", "IdNr. {}", "Steueridentifikationsnummer: {}", "German tax id {}"],
    "fr_nir": ["Mon numéro de sécu : {}", "NIR {}", "Assurée {} depuis 2019"],
    "fr_nir_solid": ["numéro de sécurité sociale {}", "nir={}"],
    "es_dni": ["Mi DNI es {}", "DNI: {}", "firmado por {} en Madrid"],
    "es_nie": ["NIE {}", "Su NIE es {}, gracias"],
    "it_cf": ["Codice fiscale: {}", "intestato a {}", "CF {} confermato"],
    "nl_bsn": ["Mijn BSN is {}", "burgerservicenummer {}", "bsn: {}"],
    "br_cpf": ["Meu CPF é {}", "cliente {} aprovado", "CPF: {}"],
    "br_cpf_solid": ["CPF {}", '{{"cpf":"{}"}}'],
    "in_aadhaar": ["Aadhaar: {}", "my id {} for kyc", "aadhar no {}"],
    "in_aadhaar_solid": ["aadhaar={}", "मेरा आधार {}", "Aadhaar number is {}"],
    "in_pan": ["PAN: {}", "tax docs for {} attached"],
    "pl_pesel": ["PESEL {}", "Mój numer PESEL to {}"],
    "se_personnummer": ["Mitt personnummer är {}", "kund {} har ringt"],
    "ch_ahv": ["AHV-Nummer {}", "Versicherte {}"],
    "be_nn": ["Rijksregisternummer {}", "numéro national {}"],
    "cl_rut": ["RUT {}", "Mi rut es {}, gracias"],
    "cn_ric": ["身份证号{}", "我的身份证是 {}。", "id card {}"],
    "kr_rrn": ["주민등록번호 {}", "RRN: {}"],
    "mx_curp": ["Mi CURP es {}", "CURP: {}"],
    "fi_hetu": ["Henkilötunnus {}", "hetu: {}"],
    "ca_sin": ["SIN: {}", "my social insurance number is {}"],
    "au_tfn": ["TFN {}", "Tax file number: {}"],
    "pt_nif": ["NIF {}", "contribuinte {}"],
    "za_id": ["ID number {}", "South African identity no. {}"],
    "tr_tckn": ["TC kimlik no {}", "TCKN: {}"],
    "passport": ["Passport number {}", "my passport is {}", "Reisepass-Nr. {}", "pasaporte {}"],
    "password": [
        "password={}",
        "DB_PASSWORD={}",
        'password: "{}"',
        "the password is {}",
        "Passwort: {}",
        "mot de passe : {}",
        "contraseña: {}",
        "senha: {}",
        "pwd={};",
        "Mein Kennwort lautet {}",
        "login ann / password {}x",
        '{{"user": "ann", "password": "{}"}}',
        "пароль: {}",
        "密码：{}",
        "mysql --password={} -u root",
        "root's pwd is {}",
        "wifi passphrase: {}",
        "SMTP_PASS={}",
        "The new Password was {}, I think",
        "PGPASSWORD={} psql -h db",
        "spring.datasource.password={}",
        "curl -u admin:{} https://host.example.com/",
        "sshpass -p '{}' ssh root@10.0.0.4",
    ],
    "aws_secret": [
        "aws_secret_access_key = {}",
        "AWS secret: {}",
        "AWS_SECRET_ACCESS_KEY={}",
        "secretAccessKey: '{}'",
        "the aws secret key is {}",
    ],
    "hex_secret": [
        "api_key={}",
        "API key: {}",
        "CLOUDFLARE_API_KEY={}",
        "signing_key: {}",
        "x-api-key: {}",
        "the api key is {}",
        "apiKey: '{}',",
        "GET /v1?api_key={}&page=2",
    ],
    "random_secret": [
        "client_secret: {}",
        "SECRET_KEY='{}'",
        '"auth_token": "{}"',
        'token = "{}"',
        "--api-key {}",
        "OPENAI_API_KEY={}",
        "AZURE_OPENAI_KEY={}",
        "access key {}",
    ],
    "azure_storage": ["AccountKey={}", "SharedAccessKey={};EntityPath=hub", "account_key: {}"],
    "sas": [
        "https://media.blob.core.windows.net/a?sv=2023-01-03&se=2026-01-01&sr=b&sp=r&sig={}",
        "?sp=rw&sig={}&sv=2022",
    ],
    "basic": ["Authorization: Basic {}", "-H 'authorization: basic {}'"],
    "opaque": [
        "Authorization: Bearer {}",
        "Bearer {}",
        "Authorization: Token {}",
        '"Authorization": "Bearer {}"',
        "proxy sent Bearer {} upstream",
        "refresh_token={}",
    ],
}

MIXED = [
    "Ann (<email>, <phone_intl>) paid with <card_visa>.",
    "Kunde <email>, IBAN <iban_grouped>, Tel. <phone_de>",
    "user <email> ran psql <postgres> and got\n<trace_python>\nplease call <phone_us>",
    "Deploy with <github> and DATABASE_URL=<mysql>; questions to <email>",
    "<email>, <email> and <email> were on the call; the key <anthropic> leaked",
    "cliente <br_cpf>, <email>, <phone_br>",
    "Refund <card_amex> or <iban_solid>? Ask <email>.",
    "<openai_project>\n<stripe>\n<google>",
]
"""Several values in one text, told by their kind."""

HARD = [
    "log in as ann with <password>",
    "the pw for the box: <password>",
    "user: root / <password>",
    "wifi at the office → <password>",
    "my login is <email> / <password>",
    "login.php?u=ann&p=<password>",
    "PIN and password are 4711 and <password>",
    "set the secret to <random_secret> please",
    "here's the token you asked for <opaque>",
    "key <hex_secret> does not work",
    "DATADOG <hex_secret>",
    "ann's number: <phone_plain>",
    "give <phone_us> a ring, or <phone_plain>",
    "<phone_plain> - Jonas, plumber",
    "ich bin unter <phone_de> erreichbar",
    "meet Rosa (<phone_gb>)",
    "Nr. <phone_de>",
    "tax number <de_steuer>",
    "<de_steuer> steht auf dem Bescheid",
    "verify <in_aadhaar_solid> with the bank",
    "her number <us_ssn_solid> is on the W-2",
    "Ausweis <passport>",
    "<pl_pesel> (numer ewidencyjny)",
    "<nl_bsn> staat op je loonstrook",
    "card no <card_visa>CVC 123",
    "acct <iban_grouped>/EUR",
    "email:<email>;tel:<phone_intl>;",
    "mailbox <email_spelled> or via the form",
    "<ado>Max Pool Size=20",
    'psql "<libpq>"',
    "<postgres>,<redis>",
    "failed: <trace_js> (see above)",
    "> <trace_java>",
    "<trace_otlp> and then it went quiet",
    "first <jwt>then nothing",
    "cookie: sid=<jwt>; path=/",
]
"""Where a rule has little to go by. They show what is missed, and no rule was made for them."""

COPIES = 2
"""Of every sentence, with other values each time."""


class Case(NamedTuple):
    half: Half
    kind: str
    text: str
    spans: tuple[Finding, ...]


def half_of(sentence: str) -> Half:
    return "dev" if hashlib.sha256(sentence.encode()).digest()[0] % 2 else "held-out"


def cases() -> Iterator[Case]:
    for sentence in sorted(set(_sentences())):
        kind = "".join(re.findall(r"<([a-z0-9_]+)>", sentence)[:1])
        for copy in range(COPIES):
            yield _filled(half_of(sentence), kind, sentence, Random(f"{sentence}{copy}"))
    for kind, sentence in NEGATIVES:
        yield Case(half_of(sentence), kind, sentence, ())


def _sentences() -> Iterator[str]:
    yield from (*MIXED, *HARD)
    for kind, (category, _) in KINDS.items():
        own = SAID.get(kind) or ANYWHERE.get(kind) or ANYWHERE[category]
        # Many kinds share their sentences: four of them each, drawn by the kind's name, are as telling as all.
        few = own if category not in ("api_key", "connection_string") or kind in SAID else Random(kind).sample(own, 4)
        for sentence in few:
            yield sentence.replace("{{", "{").replace("}}", "}").replace("{}", f"<{kind}>")


def _filled(half: Half, kind: str, sentence: str, rng: Random) -> Case:
    text, spans, last = "", [], 0
    for slot in re.finditer(r"<([a-z0-9_]+)>", sentence):
        if slot[1] not in KINDS:
            continue
        category, make = KINDS[slot[1]]
        text += sentence[last : slot.start()]
        value = make(rng)
        spans.append(Finding(len(text), len(text) + len(value), category))
        text, last = text + value, slot.end()
    return Case(half, kind, text + sentence[last:], tuple(spans))


class Score(NamedTuple):
    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


Finder = Callable[[str], Iterable[Finding]]


def ours(text: str) -> list[Finding]:
    return findings_in(text, {})


def scores(half: Half, finder: Finder = ours) -> dict[Category, Score]:
    """A value is found if a finding of its category covers it whole and not much more; any other finding is wrong."""
    right, wrong, missed = Counter[Category](), Counter[Category](), Counter[Category]()
    for case in cases():
        if case.half == half:
            hits, extra, left = judged(case, finder)
            right.update(one.category for one in hits)
            wrong.update(one.category for one in extra)
            missed.update(one.category for one in left)
    return {category: Score(right[category], wrong[category], missed[category]) for category, _ in KINDS.values()}


def judged(case: Case, finder: Finder = ours) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """What was found of it, what else was found, and what was missed."""
    found = list(finder(case.text))
    hits = [want for want in case.spans if any(_covers(one, want) for one in found)]
    extra = [one for one in found if not any(_covers(one, want) for want in case.spans)]
    return hits, extra, [want for want in case.spans if want not in hits]


SLACK = 24
"""Characters that a finding may take more than the value, such as the quotation mark or word beside it."""


def _covers(one: Finding, want: Finding) -> bool:
    slack = 200 if want.category == "trace_dump" else SLACK
    near = one.start <= want.start and want.end <= one.end and (one.end - one.start) - (want.end - want.start) <= slack
    return near and one.category == want.category


def table(finder: Finder = ours) -> str:
    dev, held = scores("dev", finder), scores("held-out", finder)
    lines = [
        "| category | dev: values | precision | recall | held-out: values | precision | recall |",
        "|---|---|---|---|---|---|---|",
    ]
    for category in dev:
        cells = [
            cell
            for score in (dev[category], held[category])
            for cell in (str(score.right + score.missed), f"{score.precision:.3f}", f"{score.recall:.3f}")
        ]
        lines.append(f"| `{category}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    every = list(cases())
    for half in ("dev", "held-out"):
        mine = [case for case in every if case.half == half]
        clean = [case for case in mine if not case.spans]
        touched = sum(bool(judged(case)[1]) for case in clean)
        count = sum(len(case.spans) for case in mine)
        print(f"{half}: {count} values; {len(clean)} texts without, {touched} of them changed")
    print(table())
    if "--dev" in sys.argv:
        for case in every:
            _, extra, left = judged(case)
            if case.half == "dev" and (extra or left):
                print(case.kind, repr(case.text[:300]))
                for said, spans in (("extra", extra), ("missed", left)):
                    print("   ", said, [(one.category, case.text[one.start : one.end][:80]) for one in spans])


if __name__ == "__main__":
    main()
