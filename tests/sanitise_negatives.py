"""Texts that must stay as they are, though they look like what is taken out."""

import uuid
from collections.abc import Iterator
from random import Random

from sanitise_values import BASE64, HEX, UPPER, Make, digits, luhn_digit, one_of, pick, shaped


def wrong_card(rng: Random) -> str:
    number = "4" + digits(rng, 14)
    return number + str((int(luhn_digit(number)) + 1 + rng.randrange(8)) % 10)


def timestamp(rng: Random) -> str:
    day = f"20{rng.randrange(18, 27)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    return f"{day}T{rng.randrange(24):02}:{rng.randrange(60):02}:07.{digits(rng, 3)}Z"


FAMILIES: dict[str, tuple[Make, tuple[str, ...]]] = {
    "uuid": (
        lambda r: str(uuid.UUID(int=r.getrandbits(128), version=4)),
        ("session {} ended", "id={}", "Siehe Vorgang {}.", "request_id: {} took 20 ms"),
    ),
    "git": (
        lambda r: pick(r, HEX, 40),
        ("fixed in {}", "commit {}\nAuthor: Ann", "git checkout {}", "revert {} please"),
    ),
    "short_git": (lambda r: pick(r, HEX, 8), ("see {} for the fix", "main@{}", "image tag {}")),
    "sha256": (lambda r: pick(r, HEX, 64), ("sha256:{}", "image@sha256:{}", "checksum {} ok", "digest: {}")),
    "version": (shaped("#.1%.#"), ("upgrade to {} first", "python=={}", "react@{}", "v{} is out", "Chrome/1{}.0.0")),
    "date": (
        one_of(shaped("2024-0%-1%"), shaped("1%.0%.2023"), shaped("0%/1%/2025"), shaped("1%-0%-2024")),
        ("due on {}", "geboren am {}", "from {} on", "call me on {} please"),
    ),
    "timestamp": (timestamp, ("at {} it restarted", "[{}] INFO ready", "phone rang at {}", "created={}")),
    "epoch": (
        one_of(shaped("17########"), shaped("17###########"), shaped("17#################")),
        ("ts={}", "started at {}", "expires_at: {}"),
    ),
    "ip": (
        one_of(shaped("10.1.%.##"), shaped("192.168.%.1%"), shaped("172.16.1%.%")),
        ("ssh to {}", "host {} is down", "phone at {}:5060", "from {} port 51234"),
    ),
    "ipv6": (lambda r: ":".join(pick(r, HEX, 4) for _ in range(8)), ("listening on [{}]:443", "peer {}")),
    "mac": (lambda r: ":".join(pick(r, HEX, 2) for _ in range(6)), ("device {} joined",)),
    "price": (
        one_of(shaped("%,###.##"), shaped("%.###,##"), shaped("%##.#%")),
        ("it cost ${}", "{} EUR total", "budget of {} a month"),
    ),
    "order": (
        one_of(shaped("1######"), shaped("ORD-2024-######"), shaped("#######"), shaped("INV-#####")),
        ("order {} was shipped", "ticket {}", "Bestellung {} ist da", "refund {} today"),
    ),
    "long_order": (shaped("8###############"), ("order {} arrived", "tracking {}", "Sendung {}")),
    "wrong_card": (wrong_card, ("reference {}", "batch {} done", "id {}")),
    "isbn": (
        one_of(shaped("978-3-16-148%10-0"), shaped("9780306406157"), shaped("0-306-4061%-2")),
        ("ISBN {}", "read {} by Knuth"),
    ),
    "colour": (lambda r: "#" + pick(r, HEX, 6), ("background: {};", "use {} for links")),
    "ticket_tool": (shaped("^^^-####"), ("see {}", "{} blocks the release", "merged {} into main")),
    "tracking": (one_of(shaped("1Z999AA1012345%###"), shaped("JJD000#########")), ("UPS {}", "parcel {} is late")),
    "digits11": (shaped("###########"), ("job {} done", "row {} of the export", "chat {}")),
    "digits9": (shaped("#########"), ("user {} logged in", "size {} bytes", "PR build {}")),
    "wrong_iban": (shaped("DE00##################"), ("reference {}", "code {}")),
    "part": (one_of(shaped("^^-####-^^"), shaped("^^^#####^")), ("part {} is out of stock", "SKU {}")),
    "coordinates": (shaped("52.5%####, 13.4%####"), ("at {}", "geo: {}")),
    "score": (shaped("0.#################"), ("similarity {}", "loss={}", "p = {}")),
    "base64": (lambda r: pick(r, BASE64, 120), ("data:image/png;base64,{}", "body was {}")),
    "trace_id": (
        lambda r: pick(r, HEX, 32),
        ("trace {} is slow", "trace_id={}", "traceparent: 00-{}-00f067aa0ba902b7-01"),
    ),
    "ulid": (lambda r: "01" + pick(r, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 24), ("event {}", "id {} first")),
    "phone_like": (
        one_of(shaped("####-####"), shaped("### ###"), shaped("##-##")),
        ("rows {}", "pages {} of the book", "seats {}"),
    ),
    "aws_arn": (shaped("arn:aws:iam::############:role/deploy"), ("assume {}", "denied for {}")),
    "caps": (lambda r: pick(r, UPPER, 20), ("code {}", "sequence {}")),
}

SENTENCES = """
call me at 5
Call me back at 10:30 or at 11.
Let's call the API 1000000 times and see.
I'll ring you in 20 minutes.
Text 3 of 12 is missing.
The phone screen is 6.1 inches.
phone support is open 9-17
My phone has 128 GB and costs 799.
iPhone 15 Pro, 2023
Telefonkonferenz um 14:30 am 12.03.2024
tel aviv 2024
The mobile team has 14 people since 2021-03-04.
Signal to noise 12.5
Room +1 person, +2 more
2+2=4 and 10+20+30=60
x = +123456789
diff: +1234567 -7654321 lines
the offset is +0200, not +0100
GMT+02:00
C++20 and +10000 points
temperature rose +12.5 to 2024 levels
dial down the noise by 3.5 to 7.25
The range is 1000-2000-3000.
200 300 400 500 rows
1 2 3 4 5 6 7 8 9 10 11 12
0 1 1 2 3 5 8 13 21 34
1234 5678
3.14159265358979323846
1e-10, 6.02214076e23
matrix 1024x1024x3, batch 4096
ports 8000-8010, 5432, 6379
chmod 0644, uid 1000
the year 2024-2025 budget
section 4.1.2.3 of RFC 6962
RFC 5322 and RFC 3339
ISO 8601, ISO 27001:2022
PostgreSQL 16.2, Python 3.11.9, Node 20.11.1
Ubuntu 22.04.4 LTS
CVE-2024-3094 was found on 2024-03-29
See issue #12345 and PR 67890.
EUR 1.234.567,89
$1,234,567.89
1.234.567-9 units
part number 123-45-678
score 123-45-67
the code is 12-34-56
sort code 20-00-00
bin 411111
4111 is a prefix of Visa test cards
card ending in 4242
your card **** **** **** 4242 expires soon
the card ends 1111
IBAN is the standard for account numbers
An IBAN in Germany starts with DE and has 22 signs
DE89 is a prefix
GB29 NWBK is how it begins
my SSN is private
The SSN field is 9 digits long
please never ask for a DNI
PAN means primary account number
passport control was slow
My passport expires in 2027.
the tax id is missing
BSN and CPF are national numbers
email me tomorrow
My email address changed.
@ann can you look at this?
Thanks @bob-smith and @carol!
@app.route("/users/<int:id>")
@dataclass(frozen=True)
@pytest.mark.parametrize("page", PAGES)
@media (max-width: 600px)
import { x } from "@scope/package"
npm install @types/node@20.1.0
npm i lodash@4.17.21 react@18.2.0
pip install git+https://github.com/org/repo@main
docker pull ghcr.io/org/app@sha256:latest
git clone git@github.com:whence/whence.git
git remote add origin git@gitlab.example.com:team/app.git
logo@2x.png and icon@3x.webp
https://medium.com/@ann/how-to-write-1234
follow @ann@mastodon.social
https://www.youtube.com/@channel
meet @ 5pm @ the office
a@b
user@localhost
5 @ $3.00 each
https://example.com/path/to/page?id=123456&sort=asc#top
https://github.com/org/repo/commit/0a1b2c3d4e5f60718293a4b5c6d7e8f901234567
http://localhost:8080/@user/settings
http://127.0.0.1:8010/v1/events
ws://host:9000/socket
postgres://localhost/app
postgresql://app@db.internal:5432/orders
postgres://user:${DB_PASSWORD}@db/app
postgresql://app:<password>@host/db
mysql://root:***@localhost/test
redis://localhost:6379/0
mongodb://localhost:27017
amqp://guest@localhost
sqlite:///var/lib/app.db
DATABASE_URL=sqlite:///./test.db
s3://bucket/key/2024/01/02/file.parquet
file:///home/ann/notes.txt
jdbc:postgresql://db.internal:5432/crm
host=db.internal port=5432 dbname=app user=svc
Server=sql.example.com;Database=crm;Integrated Security=true;
Server=sql;Database=crm;User Id=app;Password={password};
a=1; b=2; c=3
x=1;y=2;z=3;
user=ann action=login status=200
password
The password is required.
password: required
password must be at least 12 characters
Forgot your password? Reset it here.
the password is wrong
Password is case-sensitive
password=$DB_PASSWORD
password: ${DB_PASSWORD}
password = os.environ["DB_PASSWORD"]
password = getpass.getpass()
password=<your password>
password: ********
"password": "string"
password: Optional[str] = None
password_hash = hash_password(password)
def login(user: str, password: str) -> Token:
passwort vergessen?
mot de passe oublié
la clave es la paciencia
La clave: escuchar primero
token: str
token = get_token(user)
token = response.json()["token"]
token=os.getenv("TOKEN")
max_tokens=4096
max_tokens: 128000
tokens: 15320 in, 210 out
prompt_tokens=1532 completion_tokens=210
the token is expired
token: null
eos_token: "<|endoftext|>"
pad_token_id = 50256
next_page_token: CAUQAA12345678abcdefgh
Bearer token authentication is used
Authorization: Bearer <token>
Authorization: Bearer $TOKEN
Authorization: Basic auth is off
Basic authentication and bearer tokens
bearer of bad news
api_key: YOUR_API_KEY
api_key="your-api-key-here-1234567890"
api_key=settings.api_key
OPENAI_API_KEY=sk-...
OPENAI_API_KEY is not set
export API_KEY=xxxxxxxxxxxxxxxxxxxxxxxx
the api key is stored in the vault
apiKey: process.env.API_KEY
api key: see 1Password
secret: true
secret santa is on 12/12
secretName: my-app-tls-2024
client_secret is missing
SECRET_KEY = config("SECRET_KEY")
secrets.token_urlsafe(32)
secret sauce: 3 eggs, 200g flour
key: value
primary_key=True
key_id=4
foreign key: orders.customer_id
sk-learn is scikit-learn
sk-toggleable__content and sk-estimator-doc-link
sk_live_ is the prefix of live keys
keys begin with sk-ant-
ghp_ tokens are personal
AKIA is how AWS ids begin
hf_hub_download(repo_id="bert-base-uncased")
npm_config_registry and npm_package_version
npm_lifecycle_event=test
xoxo, Ann
AIza is the Google prefix
dapi is a prefix
pypi-server 1.5.2
SG. stands for Singapore
SKU12345678
AC power, SK hynix
glpat- is for GitLab
key-value store
uk_region.eu.west
eyJ is how tokens begin
eyJhbGciOi... is the header
eyJub3QiOiJhIGp3dCJ9
e30.e30.e30
-----BEGIN CERTIFICATE-----␤MIIBszCCAVmgAwIBAgIUQ␤-----END CERTIFICATE-----
-----BEGIN PUBLIC KEY-----␤MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE␤-----END PUBLIC KEY-----
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7 ann@laptop
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx9
the PRIVATE KEY header
BEGIN PRIVATE KEY
---------------------------------
Traceback (most recent call last) is what Python prints.
I got a traceback, ValueError: invalid literal
ValueError: invalid literal for int()
The stack trace was long.
it fails at line 42 of app.py
File "app.py", line 42
look at main.go:42
panic: do not panic
at the office (second floor)
we met at noon␤at the station (platform 2)␤and left
at 5 (or later)
Error: not found
NullPointerException in OrderService
java.lang.NullPointerException is common
Caused by: a typo
goroutine leaks are hard
#0 is the first frame
1: apples␤2: pears␤3: plums
{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "message": "done"}
{"level": "info", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7", "msg": "paid"}
{"name": "Ann", "age": 42, "tags": ["a", "b"]}
{"spans": 3, "traces": 1}
{"id": 7, "duration": 12, "start_time": "2024-01-01"}
resourceSpans is the top key of OTLP
traceId and spanId identify a span
the trace dump was replaced
function f(x) { return x + 1; }
SELECT id FROM orders WHERE total > 100.00 AND created > '2024-01-02';
/usr/local/lib/python3.11/site-packages/whence/app.py
C:\\Users\\ann\\Documents\\2024\\report.docx
~/.ssh/config and /etc/hosts
../src/main.rs:10:5
2024/01/02 10:00:00 [error] 1234#5678: *90 connect failed
10:00:00.123 [main] INFO c.a.Shop - started in 2.345 s
192.168.0.1 - - [10/Oct/2024:13:55:36 +0000] "GET / HTTP/1.1" 200 2326
Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36
The meeting ID is 812 3456 7890
Zoom 845 1234 5678, passcode in the invite
flight LH1234 on 12 March, seat 14C
gate A12, PNR ABC123
license plate B-AB 1234
postcode SW1A 1AA
ZIP 94103-1234
PLZ 10115 Berlin
VAT DE123456789
HRB 123456 B
ISSN 2049-3630
doi:10.1000/182
arXiv:2310.08560v2
EAN 4006381333931
lot 20240312-0042
serial C02XG2JHJG5J
IMEI is on the box
chess: 1. e4 e5 2. Nf3 Nc6
score 3-2, then 21-19, 15-21, 21-18
Berlin 52.52 N 13.40 E
population 83,200,000
speed 299792458 m/s
10000000 rows in 12 s
GPT-4o and gpt-4.1-mini-2025-04-14
claude-3-5-sonnet-20241022
text-embedding-3-small, 1536 dimensions
us-east-1, eu-central-1a
i-0abcd1234ef567890
vpc-0a1b2c3d, sg-0123456789abcdef0
ami-0abcdef1234567890
node-7f9c6b5d4-x2x9z
cron 0 0 1 1 *
*/5 * * * *
[email] was replaced already
write to [email] or call [phone]
password=[api key]
Authorization: Bearer [jwt]
DATABASE_URL=[connection string]
[trace dump]
我们明天10点开会
会議は15時から16時30分まで
Встреча в 15:00, кабинет 412
Das Treffen ist um 15:30 Uhr in Raum 2.041
La reunión es a las 15:30 en la sala 204
Le vol AF1234 part à 06h45
Il treno 9512 parte alle 10:15
""".strip().splitlines()
"""One a line; `␤` is a newline."""


def _negatives() -> Iterator[tuple[str, str]]:
    for kind, (make, sentences) in FAMILIES.items():
        for sentence in sentences:
            for copy in range(3):
                yield kind, sentence.format(make(Random(f"{kind}{sentence}{copy}")))
    for sentence in _SENTENCES:
        yield "sentence", sentence


_SENTENCES = [sentence.replace("␤", "\n") for sentence in SENTENCES]
NEGATIVES = list(_negatives())
