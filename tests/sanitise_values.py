"""Invented values in real formats, from a seed: no line of this repository holds anything that looks like a secret."""

import base64
import json
import string
from collections.abc import Callable
from random import Random

from stdnum import iso7064
from stdnum.au import tfn
from stdnum.be import nn
from stdnum.br import cpf
from stdnum.ca import sin
from stdnum.ch import ssn as ahv
from stdnum.cl import rut
from stdnum.cn import ric
from stdnum.de import idnr
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.in_ import aadhaar
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.mx import curp
from stdnum.nl import bsn
from stdnum.pl import pesel
from stdnum.pt import nif
from stdnum.tr import tckimlik
from stdnum.za import idnr as za_idnr

Make = Callable[[Random], str]

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
HEX = "0123456789abcdef"
BASE64 = ALNUM + "+/"
UPPER = string.ascii_uppercase


def pick(rng: Random, signs: str, count: int) -> str:
    """With a digit in it: real tokens of this length have one nearly always, and the rest would make noise."""
    found = "".join(rng.choice(signs) for _ in range(count))
    return found if "0" not in signs or any(sign.isdigit() for sign in found) else pick(rng, signs, count)


def digits(rng: Random, count: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(count))


def shaped(form: str) -> Make:
    """`#` is a digit, `%` one from 2 to 9, `^` a capital; all else stands for itself."""
    signs = {"#": "0123456789", "%": "23456789", "^": UPPER}
    return lambda rng: "".join(rng.choice(signs[sign]) if sign in signs else sign for sign in form)


def token(prefix: str, signs: str, count: int, suffix: str = "") -> Make:
    return lambda rng: prefix + pick(rng, signs, count) + suffix


def one_of(*makes: Make) -> Make:
    return lambda rng: rng.choice(makes)(rng)


def until(make: Make, is_valid: Callable[[str], bool]) -> Make:
    def made(rng: Random) -> str:
        while not is_valid(found := make(rng)):
            pass
        return found

    return made


def luhn_digit(number: str) -> str:
    doubled = [int(sign) * (2 - at % 2) for at, sign in enumerate(reversed(number))]
    return str(-sum(value // 10 + value % 10 for value in doubled) % 10)


def card(prefix: str, length: int, groups: tuple[int, ...] = (), gap: str = " ") -> Make:
    def made(rng: Random) -> str:
        number = prefix + digits(rng, length - len(prefix) - 1)
        number += luhn_digit(number)
        parts: list[str] = []
        for size in groups:
            parts.append(number[:size])
            number = number[size:]
        return gap.join(parts) if groups else number

    return made


def iban(country: str, form: str, gap: str = "") -> Make:
    def made(rng: Random) -> str:
        bban = shaped(form)(rng)
        number = country + iso7064.mod_97_10.calc_check_digits(bban + country) + bban
        return gap.join(number[at : at + 4] for at in range(0, len(number), 4)) if gap else number

    return made


FIRST = [
    "anna",
    "ben",
    "chloe",
    "dmitri",
    "elena",
    "farid",
    "grace",
    "hiro",
    "ines",
    "jonas",
    "kofi",
    "lena",
    "maria",
    "nils",
    "olga",
    "pablo",
    "quinn",
    "rosa",
    "sven",
    "tariq",
]
LAST = [
    "smith",
    "garcia",
    "mueller",
    "rossi",
    "dubois",
    "tanaka",
    "kowalski",
    "silva",
    "okafor",
    "jansen",
    "novak",
    "lee",
    "patel",
    "ivanova",
    "berg",
]
DOMAINS = [
    "example.com",
    "mail.example.org",
    "firma-beispiel.de",
    "ejemplo.es",
    "acme.co.uk",
    "posta.it",
    "uni-musterstadt.de",
    "corp.io",
]


def email(rng: Random) -> str:
    first, last, domain = rng.choice(FIRST), rng.choice(LAST), rng.choice(DOMAINS)
    forms = (
        f"{first}.{last}",
        f"{first[0]}{last}",
        f"{first}_{last}{rng.randrange(99)}",
        f"{first}+news",
        f"{first}-{last}",
    )
    return f"{rng.choice(forms)}@{domain}"


def spelled_email(rng: Random) -> str:
    local, _, domain = email(rng).partition("@")
    return rng.choice(
        (f"{local} [at] {domain}", f"{local}(at){domain}", f"{local} (at) {domain.replace('.', ' (dot) ')}")
    )


def password(rng: Random) -> str:
    forms = (
        lambda: rng.choice(("Winter", "Dragon", "Berlin", "Kaffee", "Tiger")) + digits(rng, 4) + rng.choice("!#?"),
        lambda: pick(rng, ALNUM, 12),
        lambda: pick(rng, ALNUM, 6) + rng.choice("!@#+=") + pick(rng, ALNUM, 5),
    )
    return rng.choice(forms)()


def simple_password(rng: Random) -> str:
    """One that fits into an address as it is."""
    return pick(rng, ALNUM + "_-", rng.randrange(8, 20))


def b64url(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwt(rng: Random) -> str:
    header = {"alg": rng.choice(("HS256", "RS256", "ES256")), "typ": "JWT"}
    claims = {"sub": digits(rng, 8), "iat": 1_700_000_000 + rng.randrange(10**7), "scope": "read"}
    return f"{b64url(header)}.{b64url(claims)}.{pick(rng, URLSAFE, 43)}"


def pem(kind: str, newline: str = "\n", cut: bool = False) -> Make:
    def made(rng: Random) -> str:
        lines = [pick(rng, BASE64, 64) for _ in range(rng.randrange(3, 9))]
        end = [] if cut else [f"-----END {kind}-----"]
        return newline.join([f"-----BEGIN {kind}-----", *lines, *end])

    return made


def service_account(rng: Random) -> str:
    account = {
        "type": "service_account",
        "project_id": "demo-" + digits(rng, 6),
        "private_key_id": pick(rng, HEX, 40),
        "private_key": pem("PRIVATE KEY")(rng) + "\n",
        "client_email": f"robot@demo-{digits(rng, 6)}.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    return json.dumps(account, indent=rng.choice((None, 2)))


def birth(rng: Random, form: str = "{y:02}{m:02}{d:02}") -> str:
    return form.format(y=rng.randrange(50, 99), m=rng.randrange(1, 13), d=rng.randrange(1, 29))


def personnummer(rng: Random) -> str:
    number = birth(rng) + digits(rng, 3)
    return f"{number[:6]}-{number[6:]}{luhn_digit(number)}"


def spaced_nir(rng: Random) -> str:
    number = until(lambda r: f"{r.choice('12')}{birth(r)[:4]}{r.randrange(10, 95)}{digits(r, 8)}", nir.is_valid)(rng)
    return " ".join((number[0], number[1:3], number[3:5], number[5:7], number[7:10], number[10:13], number[13:]))


def codice_fiscale(rng: Random) -> str:
    consonants = "BCDFGLMNPRSTVZ"
    number = pick(rng, consonants, 6) + f"{rng.randrange(50, 99)}{rng.choice('ABCDEHLMPRST')}{rng.randrange(10, 28)}"
    number += rng.choice("AFHL") + digits(rng, 3)
    return number + codicefiscale.calc_check_digit(number)


def mexican(rng: Random) -> str:
    number = f"{rng.choice('GLMR')}{rng.choice('AEIO')}{pick(rng, 'BCDFGL', 2)}{birth(rng)}{rng.choice('HM')}DF"
    number += pick(rng, "BCDFGLMNP", 3) + rng.choice("0123")
    return number + curp.calc_check_digit(number)


def chinese(rng: Random) -> str:
    number = f"{rng.choice(('110105', '310104', '440305'))}19{birth(rng)}{digits(rng, 3)}"
    return number + ric.calc_check_digit(number + "0")


def korean(rng: Random) -> str:
    number = f"{birth(rng)}{rng.choice('12')}{digits(rng, 5)}"
    return f"{number[:6]}-{number[6:]}{rrn.calc_check_digit(number)}"


def swiss(rng: Random) -> str:
    return ahv.format(until(lambda r: "756" + digits(r, 10), ahv.is_valid)(rng))


def grouped(make: Make, *sizes: int, gap: str = " ") -> Make:
    def made(rng: Random) -> str:
        number, parts = make(rng), []
        for size in sizes:
            parts.append(number[:size])
            number = number[size:]
        return gap.join([*parts, number] if number else parts)

    return made


def hetu_number(rng: Random) -> str:
    return until(
        lambda r: birth(r, "{d:02}{m:02}{y:02}") + f"-{digits(r, 3)}{r.choice('ABCDEFHJKLMNPRSTUVWXY')}", hetu.is_valid
    )(rng)


def belgian(rng: Random) -> str:
    return nn.format(until(lambda r: birth(r) + digits(r, 5), nn.is_valid)(rng))


EMAIL: dict[str, Make] = {"email": email, "email_spelled": spelled_email}

PHONE: dict[str, Make] = {
    "phone_intl": one_of(
        shaped("+1 (%15) 555-####"),
        shaped("+1-%12-555-01##"),
        shaped("+44 20 7946 0###"),
        shaped("+49 30 901820-##"),
        shaped("+49 171 2345###"),
        shaped("+33 6 12 34 ## ##"),
        shaped("+34 612 345 ###"),
        shaped("+9198765####"),
        shaped("+55 11 9####-####"),
        shaped("+81 90-1234-####"),
        shaped("+86 138 1234 ####"),
        shaped("+491512345####"),
        shaped("0049 89 1234###"),
        shaped("+39 06 6988 ####"),
        shaped("+31 6 1234####"),
        shaped("+41 44 668 ## ##"),
    ),
    "phone_us": one_of(shaped("(%15) 555-2###"), shaped("%15-555-2###"), shaped("%12.555.01##")),
    "phone_fr": one_of(shaped("06 12 34 ## ##"), shaped("01.42.68.##.##")),
    "phone_gb": one_of(shaped("07700 900###"), shaped("020 7946 0###"), shaped("01632 960###")),
    "phone_jp": one_of(shaped("090-1234-####"), shaped("03-1234-####")),
    "phone_br": shaped("(11) 9####-####"),
    "phone_de": one_of(shaped("0171 2345###"), shaped("030/12345-##"), shaped("(030) 123 45##"), shaped("08912345###")),
    "phone_plain": one_of(
        shaped("%15552###"), shaped("98765 4####"), shaped("612 345 ###"), shaped("1381234####"), shaped("555-2###")
    ),
}

CARD: dict[str, Make] = {
    "card_visa": one_of(card("4", 16), card("4", 16, (4, 4, 4, 4)), card("4", 16, (4, 4, 4, 4), "-")),
    "card_mastercard": one_of(card("53", 16), card("2301", 16, (4, 4, 4, 4)), card("5105", 16, (4, 4, 4, 4), "\u00a0")),
    "card_amex": one_of(card("37", 15), card("34", 15, (4, 6, 5)), card("37", 15, (4, 6, 5), "-")),
    "card_other": one_of(
        card("6011", 16, (4, 4, 4, 4)), card("3530", 16), card("36", 14, (4, 6, 4)), card("6221", 19), card("6759", 16)
    ),
}

IBAN: dict[str, Make] = {
    "iban_solid": one_of(
        iban("DE", "#" * 18), iban("FR", "#" * 10 + "^" + "#" * 12), iban("ES", "#" * 20), iban("NO", "#" * 11)
    ),
    "iban_grouped": one_of(
        iban("DE", "#" * 18, " "),
        iban("GB", "^^^^" + "#" * 14, " "),
        iban("NL", "^^^^" + "#" * 10, " "),
        iban("IT", "^" + "#" * 22, " "),
        iban("CH", "#" * 17, " "),
        iban("PL", "#" * 24, " "),
        iban("BE", "#" * 12, " "),
    ),
    "iban_dashed": iban("AT", "#" * 16, "-"),
}

NATIONAL_ID: dict[str, Make] = {
    "us_ssn": until(
        shaped("%##-##-####"), lambda n: n[0] != "9" and n[:3] != "666" and "00" not in n and n[7:] != "0000"
    ),
    "us_ssn_solid": until(shaped("%########"), lambda n: n[0] != "9" and n[:3] != "666" and "00" not in n),
    "gb_nino": one_of(shaped("AB ## ## ## C"), shaped("JM ## ## ## A"), shaped("PW ## ## ## D")),
    "gb_nino_solid": one_of(shaped("AB######C"), shaped("jk######b")),
    "gb_nhs": grouped(until(shaped("##########"), nhs.is_valid), 3, 3),
    "de_steuer": one_of(
        until(lambda r: "".join(r.sample("123456789", 8)) + digits(r, 3), idnr.is_valid),
        grouped(until(lambda r: "".join(r.sample("123456789", 8)) + digits(r, 3), idnr.is_valid), 2, 3, 3),
    ),
    "fr_nir": spaced_nir,
    "fr_nir_solid": lambda rng: spaced_nir(rng).replace(" ", ""),
    "es_dni": one_of(until(shaped("########^"), dni.is_valid), until(shaped("########-^"), dni.is_valid)),
    "es_nie": one_of(until(shaped("X#######^"), nie.is_valid), until(shaped("Y-#######-^"), nie.is_valid)),
    "it_cf": codice_fiscale,
    "nl_bsn": until(shaped("%########"), bsn.is_valid),
    "br_cpf": until(shaped("###.###.###-##"), cpf.is_valid),
    "br_cpf_solid": until(shaped("###########"), cpf.is_valid),
    "in_aadhaar": grouped(until(shaped("%###########"), aadhaar.is_valid), 4, 4),
    "in_aadhaar_solid": until(shaped("%###########"), aadhaar.is_valid),
    "in_pan": shaped("BQTPA####K"),
    "pl_pesel": until(lambda r: birth(r) + digits(r, 5), pesel.is_valid),
    "se_personnummer": personnummer,
    "ch_ahv": swiss,
    "be_nn": belgian,
    "cl_rut": until(shaped("1%.###.###-#"), rut.is_valid),
    "cn_ric": chinese,
    "kr_rrn": korean,
    "mx_curp": mexican,
    "fi_hetu": hetu_number,
    "ca_sin": grouped(until(shaped("%########"), sin.is_valid), 3, 3),
    "au_tfn": grouped(until(shaped("%########"), tfn.is_valid), 3, 3),
    "pt_nif": until(shaped("2########"), nif.is_valid),
    "za_id": until(lambda r: birth(r) + digits(r, 7), za_idnr.is_valid),
    "tr_tckn": until(shaped("%##########"), tckimlik.is_valid),
    "passport": one_of(shaped("C01X#####"), shaped("#########"), shaped("AB#######")),
}

API_KEY: dict[str, Make] = {
    "openai_project": token("sk-proj-", URLSAFE, 120, "x"),
    "openai_old": lambda rng: f"sk-{pick(rng, ALNUM, 20)}T3BlbkFJ{pick(rng, ALNUM, 20)}",
    "anthropic": token("sk-ant-api03-", URLSAFE, 93, "AA"),
    "openrouter": token("sk-or-v1-", HEX, 64),
    "aws_id": one_of(token("AKIA", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16), token("ASIA", UPPER + "234567", 16)),
    "github": one_of(token("ghp_", ALNUM, 36), token("gho_", ALNUM, 36), token("ghs_", ALNUM, 36)),
    "github_pat": lambda rng: f"github_pat_{pick(rng, ALNUM, 22)}_{pick(rng, ALNUM, 59)}",
    "gitlab": token("glpat-", URLSAFE, 19, "k"),
    "slack": lambda rng: f"xoxb-{digits(rng, 12)}-{digits(rng, 13)}-{pick(rng, ALNUM, 24)}",
    "slack_user": lambda rng: f"xoxp-{digits(rng, 12)}-{digits(rng, 12)}-{digits(rng, 12)}-{pick(rng, HEX, 32)}",
    "slack_hook": lambda rng: (
        f"https://hooks.slack.com/services/T{pick(rng, UPPER, 8)}/B{pick(rng, UPPER, 8)}/{pick(rng, ALNUM, 24)}"
    ),
    "stripe": one_of(token("sk_live_", ALNUM, 24), token("rk_live_", ALNUM, 99), token("sk_test_", ALNUM, 24)),
    "google": token("AIza", URLSAFE, 34, "k"),
    "gcp_account": service_account,
    "azure_secret": lambda rng: f"{pick(rng, ALNUM, 3)}8Q~{pick(rng, ALNUM, 34)}",
    "huggingface": token("hf_", ALNUM, 34),
    "npm": token("npm_", ALNUM, 36),
    "pypi": token("pypi-AgEIcHlwaS5vcmc", URLSAFE, 120, "w"),
    "sendgrid": lambda rng: f"SG.{pick(rng, ALNUM, 22)}.{pick(rng, ALNUM, 43)}",
    "twilio": one_of(token("SK", HEX, 32), token("AC", HEX, 32)),
    "telegram": lambda rng: f"{rng.randrange(10**9, 9 * 10**9)}:AA{pick(rng, ALNUM, 33)}",
    "discord": lambda rng: f"M{pick(rng, ALNUM, 23)}.{pick(rng, ALNUM, 6)}.{pick(rng, ALNUM, 38)}",
    "digitalocean": token("dop_v1_", HEX, 64),
    "databricks": token("dapi", HEX, 32),
    "mailgun": one_of(token("key-", HEX, 32), lambda r: f"{pick(r, HEX, 32)}-{pick(r, HEX, 8)}-{pick(r, HEX, 8)}"),
    "mailchimp": token("", HEX, 32, "-us14"),
    "shopify": token("shpat_", HEX, 32),
    "whence": lambda rng: f"{rng.choice(('ak', 'uk'))}_default.{pick(rng, HEX, 12)}.{pick(rng, ALNUM, 43)}",
    "groq": token("gsk_", ALNUM, 52),
    "replicate": token("r8_", ALNUM, 37),
    "langsmith": lambda rng: f"lsv2_pt_{pick(rng, HEX, 32)}_{pick(rng, HEX, 10)}",
    "vault": token("hvs.", ALNUM, 95),
}

ASSIGNED: dict[str, Make] = {
    "password": password,
    "aws_secret": token("", ALNUM + "/+", 39, "k"),
    "hex_secret": token("", HEX, 40),
    "random_secret": token("", ALNUM, 32),
    "azure_storage": token("", BASE64, 86, "=="),
    "sas": token("", ALNUM, 43, "%3D"),
    "basic": lambda rng: base64.b64encode(f"{rng.choice(FIRST)}:{pick(rng, ALNUM, 12)}".encode()).decode(),
    "opaque": token("", URLSAFE, 48, "0"),
}

PRIVATE_KEY: dict[str, Make] = {
    "pem": one_of(pem("PRIVATE KEY"), pem("RSA PRIVATE KEY"), pem("EC PRIVATE KEY"), pem("OPENSSH PRIVATE KEY")),
    "pem_escaped": one_of(pem("PRIVATE KEY", "\\n"), pem("ENCRYPTED PRIVATE KEY", "\\n")),
    "pem_cut": pem("RSA PRIVATE KEY", cut=True),
    "pgp": pem("PGP PRIVATE KEY BLOCK"),
}

JWT: dict[str, Make] = {"jwt": jwt}


def address(scheme: str, rest: str) -> Make:
    def made(rng: Random) -> str:
        return f"{scheme}://{rng.choice(('app', 'root', 'svc_billing', ''))}:{simple_password(rng)}@{rest}"

    return made


CONNECTION_STRING: dict[str, Make] = {
    "postgres": one_of(
        address("postgresql", "db.internal:5432/orders"), address("postgres", "10.0.3.7/app?sslmode=require")
    ),
    "mysql": one_of(address("mysql+pymysql", "mysql.prod.example.com:3306/shop"), address("mysql", "localhost/test")),
    "mongo": address("mongodb+srv", "cluster0.ab1cd.mongodb.net/app?retryWrites=true"),
    "redis": one_of(address("redis", "cache.internal:6379/0"), address("rediss", "redis.example.com:6380")),
    "amqp": address("amqps", "rabbit.example.com:5671/vhost"),
    "basic_url": one_of(address("https", "git.example.com/team/repo.git"), address("ftp", "files.example.com/in")),
    "libpq": lambda rng: (
        f"host=db.internal port=5432 dbname=app user=svc password={simple_password(rng)} sslmode=require"
    ),
    "ado": lambda rng: (
        f"Server=tcp:sql.example.com,1433;Initial Catalog=crm;User Id=sa;Password={simple_password(rng)};Encrypt=True;"
    ),
    "npgsql": lambda rng: f"Host=pg.example.com;Username=app;Password={simple_password(rng)};Database=crm",
    "azure_blob": lambda rng: (
        "DefaultEndpointsProtocol=https;AccountName=media;AccountKey="
        f"{pick(rng, BASE64, 86)}==;EndpointSuffix=core.windows.net"
    ),
    "jdbc": lambda rng: f"jdbc:postgresql://db.internal:5432/crm?user=app&password={simple_password(rng)}&ssl=true",
}
