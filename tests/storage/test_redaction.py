"""Credentials leave a text before anything durable holds it; everything else stays as it was."""

from __future__ import annotations

import base64
import json
import random
import string
import uuid

import pytest

from storage.redaction import RULES, findings, is_clean, redact

ALNUM = string.ascii_letters + string.digits
WORD = ALNUM + "-_"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
BASE32 = string.ascii_uppercase + "234567"
DIGITS = string.digits


def _text(size: int, alphabet: str = ALNUM, seed: int = 11) -> str:
    return "".join(random.Random(f"{seed}/{size}/{alphabet}").choices(alphabet, k=size))


def _uuid(seed: int = 3) -> str:
    return str(uuid.UUID(int=random.Random(seed).getrandbits(128), version=4))


PASSWORD = "v7" + "Kq2xRw" + "9mTz4L"
TOKEN = _text(40)

# Built here, never written out: hosting services stop a push that holds one of these.
PLATFORM = {
    "anthropic-key": "sk-" + "ant-api03-" + _text(86, WORD),
    "anthropic oauth": "sk-" + "ant-oat01-" + _text(70, WORD),
    "openai-key": "sk-" + "proj-" + _text(60, WORD) + "T3Blbk" + "FJ" + _text(20),
    "openai old": "sk-" + _text(20) + "T3Blbk" + "FJ" + _text(20),
    "openrouter-key": "sk-" + "or-v1-" + _text(64, HEX),
    "langfuse-key": "sk-" + "lf-" + _uuid(),
    "google-api-key": "AI" + "za" + _text(35, WORD),
    "google-access-token": "ya" + "29." + _text(60, WORD),
    "google-refresh": "1/" + "/0" + _text(50, WORD),
    "google-oauth-secret": "GOC" + "SPX-" + _text(28, WORD),
    "huggingface-token": "h" + "f_" + _text(34),
    "replicate-token": "r" + "8_" + _text(37),
    "groq-key": "gs" + "k_" + _text(52),
    "xai-key": "xa" + "i-" + _text(80),
    "tavily-key": "tv" + "ly-" + _text(32),
    "langsmith-key": "lsv" + "2_pt_" + _text(32, HEX) + "_" + _text(10, HEX),
    "e2b-key": "e2" + "b_" + _text(40, HEX),
    "voyage-key": "p" + "a-" + _text(43, WORD),
    "pinecone-key": "pc" + "sk_" + _text(6) + "_" + _text(60),
    "perplexity-key": "pp" + "lx-" + _text(48),
    "fireworks-key": "f" + "w_" + _text(24),
    "github-token": "gh" + "p_" + _text(36),
    "github-pat": "github" + "_pat_" + _text(22) + "_" + _text(59),
    "gitlab-token": "gl" + "pat-" + _text(20, WORD),
    "slack-token": "xo" + "xb-" + _text(12, DIGITS) + "-" + _text(24),
    "slack-app-token": "xa" + "pp-1-" + _text(10, UPPER) + "-" + _text(40, HEX),
    "slack-webhook": "https://hooks.slack" + ".com/services/T" + _text(9, UPPER) + "/B"
    + _text(9, UPPER) + "/" + _text(24),
    "discord-webhook": "https://discord" + ".com/api/webhooks/" + _text(18, DIGITS) + "/"
    + _text(68, WORD),
    "discord-token": "M" + _text(23, ALNUM) + "." + _text(6) + "." + _text(27),
    "telegram-token": _text(9, "123456789") + ":A" + "A" + _text(33, WORD),
    "sendgrid-key": "S" + "G." + _text(22, WORD) + "." + _text(43, WORD),
    "mailgun-key": "ke" + "y-" + _text(32, HEX),
    "mailchimp-key": _text(32, HEX) + "-us" + "12",
    "twilio-key": "S" + "K" + _text(32, HEX),
    "stripe-key": "sk" + "_live_" + _text(24),
    "stripe-webhook": "wh" + "sec_" + _text(32),
    "square-token": "sq" + "0atp-" + _text(22, WORD),
    "shopify-token": "shp" + "at_" + _text(32, HEX),
    "plaid-token": "access-" + "sandbox-" + _uuid(),
    "npm-token": "np" + "m_" + _text(36),
    "pypi-token": "py" + "pi-AgE" + _text(80, WORD),
    "rubygems-key": "ruby" + "gems_" + _text(48, HEX),
    "docker-token": "dckr" + "_pat_" + _text(27, WORD),
    "aws-access-key-id": "AK" + "IA" + _text(16, BASE32),
    "aws temporary": "AS" + "IA" + _text(16, BASE32),
    "azure-client-secret": _text(3) + "8" + "Q~" + _text(34, WORD),
    "digitalocean-token": "do" + "p_v1_" + _text(64, HEX),
    "heroku-key": "HR" + "KU-" + _text(60, WORD),
    "netlify-token": "nf" + "p_" + _text(36),
    "cloudflare-token": "v1" + ".0-" + _text(24, HEX) + "-" + _text(100, HEX),
    "databricks-token": "da" + "pi" + _text(32, HEX),
    "planetscale-token": "psc" + "ale_tkn_" + _text(43, WORD),
    "supabase-key": "sb" + "p_" + _text(40, HEX),
    "doppler-token": "dp" + ".pt." + _text(43),
    "vault-token": "hv" + "s." + _text(90, WORD),
    "terraform-token": _text(14) + ".atlas" + "v1." + _text(60, WORD),
    "pulumi-token": "pu" + "l-" + _text(40, HEX),
    "tailscale-key": "ts" + "key-auth-" + _text(12) + "-" + _text(30),
    "age-key": "AGE-" + "SECRET-KEY-1" + _text(58, UPPER),
    "grafana-token": "gl" + "sa_" + _text(32) + "_" + _text(8, HEX),
    "newrelic-key": "NR" + "AK-" + _text(27, UPPER),
    "sentry-token": "sn" + "tryu_" + _text(64, HEX),
    "dynatrace-token": "dt0" + "c01." + _text(24, UPPER) + "." + _text(64, UPPER),
    "linear-key": "lin" + "_api_" + _text(40),
    "notion-token": "nt" + "n_" + _text(46),
    "figma-token": "fi" + "gd_" + _text(40, WORD),
    "airtable-token": "pa" + "t" + _text(14) + "." + _text(64, HEX),
    "asana-token": "1/" + _text(16, DIGITS) + ":" + _text(32, HEX),
    "postman-key": "PM" + "AK-" + _text(24, HEX) + "-" + _text(34, HEX),
    "atlassian-token": "ATA" + "TT3" + _text(180, WORD),
    "json-web-token": "ey" + "J" + _text(30) + ".ey" + "J" + _text(60) + "." + _text(43, WORD),
    "circleci-token": "CCI" + "PAT_" + _text(22) + "_" + _text(40, HEX),
    "prefect-key": "pn" + "u_" + _text(36, LOWER),
    "yandex-key": "AQ" + "VN" + _text(36, WORD),
    "alibaba-key": "LT" + "AI" + _text(20),
}  # fmt: skip

SURROUNDINGS = (
    "{}",
    "export TOKEN={}",
    '"apiKey": "{}",',
    "use {} for the staging calls",
    "密钥是 {}",
    "the key ({}) is old",
    "Set `{}` in the dashboard.",
    "first line\\n{}\\nlast line",
    "https://x.test/?t%3D{}%26n%3D1",
    "\x1b[32m{}\x1b[0m",
)

NAMED_PASSWORD = (
    "PASSWORD={}", 'DB_PASSWORD="{}"', "export DB_PASS='{}'", "spring.datasource.password={}",
    '"password": "{}"', '\\"password\\": \\"{}\\"', "  password: {}", "[client]\npassword={}",
    "- name: DB_PASSWORD\n  value: {}", '{{"name": "DB_PASSWORD", "value": "{}"}}',
    "<password>{}</password>", 'variable "db_password" {{\n  default = "{}"\n}}',
    "define('DB_PASSWORD', '{}');", ':password => "{}"', 'client.setPassword("{}")',
    'os.environ["DB_PASSWORD"] = "{}"', 'password: str = "{}"', "ENV DB_PASSWORD {}",
    '$env:DB_PASSWORD = "{}"', "mytool login --password {}", "--password={}", '"--password", "{}"',
    "mysql -u root -p{} shop", "sshpass -p {} ssh a@b", "redis-cli -h x -a {} ping",
    "docker login -u bob -p {} reg.io", "curl -u admin:{} https://x", "PGPASSWORD={} psql -h db",
    "machine api.x.com login bob password {}", "machine a.com\n  login bob\n  password {}",
    "db.example.com:5432:shop:app:{}", "CREATE USER app IDENTIFIED BY '{}';",
    'wpa-psk "{}"', "Server=db;User Id=sa;Password={};Encrypt=yes",
    "postgres://app:{}@db.example.com:5432/shop", "redis://:{}@cache:6379",
    "amqp://app:{}@mq:5672/",
    "mongodb+srv://app:{}@cluster0.mongodb.net/shop",
    "jdbc:postgresql://db/shop?user=a&password={}",
    "kubectl create secret generic x --from-literal=password={}",
    "the password is {}", "The password for the staging db is {}.", "password (prod): {}",
    "use password {} to log in", "la contraseña de producción es {}", "le mot de passe est {}",
    "Das Passwort lautet {}", "senha: {}",
    "la password è {}", "het wachtwoord is {}", "hasło to {}",
    "пароль: {}", "Пароль от базы: {}", "密码是{}", "密碼：{}", "パスワードは {} です",
    "비밀번호는 {} 입니다", "पासवर्ड {} है",
    "كلمة المرور هي {}", "lösenordet är {}", "mật khẩu là {}",
    "kata sandi: {}", "şifre: {}", "heslo je {}",
)  # fmt: skip

NAMED_TOKEN = (
    "API_KEY={}", "x-api-key: {}", '"apiKey": "{}"', "my api key is {} please keep it",
    "the aws secret is {}", 'AWS_SECRET_ACCESS_KEY = "{}"', "client_secret={}", "token: {}",
    '"access_token":"{}"', "Authorization: Bearer {}", "Authorization: token {}",
    "\\\"Authorization\\\": \\\"Bearer {}\\\"", "//registry.example.com/:_authToken={}",
    "https://x.y/z?access_token={}&x=1", "https://maps.example.com/x?key={}", "--api-key {}",
    "Cookie: sessionid={}; theme=dark", "Set-Cookie: sid={}; Path=/; HttpOnly",
    "https://b.s3.amazonaws.com/k?X-Amz-Signature={}", "otpauth://totp/A:b?secret={}&issuer=A",
    "https://acct.blob.core.windows.net/c?sv=2022-11-02&sig={}&se=2027", "AccountKey={};",
    "token = \"{}\"", "JWT_SECRET={}", "signing_key: {}", "el token es {}", "токен: {}",
    "API 密钥：{}", "secrets:\n  api_token: {}", "GITHUB_TOKEN={} gh pr list",
)  # fmt: skip

LOOKALIKES = (
    "fixed in commit " + _text(40, HEX), "index ffc38dc..a0853de 100644",
    "image: nginx@sha256:" + _text(64, HEX), "session " + _uuid() + " resumed",
    '"integrity": "sha512-' + base64.b64encode(_text(64).encode()).decode() + '"',
    "checksum = \"" + _text(64, HEX) + '"',
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5" + _text(40) + " me@h",
    "-----BEGIN PUBLIC KEY-----\n" + _text(64) + "\n-----END PUBLIC KEY-----",
    "look for -----BEGIN PRIVATE KEY----- and -----END PRIVATE KEY----- markers",
    "skipLibCheck", "pkg_manager_version", "MAX_TOKENS=100000", '"input_tokens": 12345,',
    "uses Bearer tokens in the header", "Basic authentication is disabled", "password=changeme",
    "OPENAI_API_KEY=<your-api-key>",
    "Authorization: Bearer ${GITHUB_TOKEN}", "DB_PASSWORD=$(cat x)",
    "token: ${{ secrets.GITHUB_TOKEN }}", 'token = os.environ["SLACK_BOT_TOKEN"]',
    "def verify_password(password: str, password_hash: str) -> bool:", "apiKey: string;",
    "password must be at least 12 characters long", "the secret is base64-encoded",
    "The secret is to run the migrations before the seeds.", "password: op://Prod/shop-db/password",
    "valueFrom: {secretKeyRef: {name: shop-db, key: password}}", "postgres://localhost:5432/shop",
    "postgres://postgres:postgres@localhost:5432/db", "https://user:password@example.com/x",
    "https://cdn.example.com/npm/vue@3.2.1/dist/vue.js", "git@github.com:acme/shop.git",
    "arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-AbCdEf",
    "ports: 127.0.0.1:5432:5432",
    "traceparent: 00-" + _text(32, HEX) + "-" + _text(16, HEX) + "-01",
    "task-force-alpha-1234567890",
    "AbstractSingletonProxyFactoryBeanPostProcessorImplementation", "api-7d9f8c6b5d-x2k9q",
    "/^ghp_[A-Za-z0-9]{36}$/", "AK" + "IAIOSFODNN7EXAMPLE", "gh" + "p_" + "x" * 36,
    "每次请求最多使用 4096 个 token", "la contraseña es obligatoria",
    "パスワードは必須です", "пароль обязателен",
    "mkdir -p src/gen/api", "docker run -p 8080:80 nginx", "mysql -uroot -p shop < dump.sql",
    "Cookie: theme=dark; lang=en", "tests pass in 12s", "fe80::1ff:fe23:4567:890a%eth0",
    "VGhpcyBpcyBqdXN0IGFuIG9yZGluYXJ5IHNlbnRlbmNlIGVuY29kZWQu", "Idempotency-Key: " + _uuid(),
)  # fmt: skip


@pytest.mark.parametrize("kind", PLATFORM)
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_a_platforms_token_leaves_wherever_it_stands(kind: str, surroundings: str) -> None:
    """A token with a form of its own is redacted in every context, and the context survives."""
    before, after = surroundings.split("{}")

    redacted = redact(surroundings.format(PLATFORM[kind]))

    assert PLATFORM[kind][-12:] not in redacted
    assert redacted.startswith(before)
    assert redacted.endswith(after)


@pytest.mark.parametrize("form", NAMED_PASSWORD)
def test_a_password_leaves_by_the_word_beside_it(form: str) -> None:
    """A word for password (a name, a flag, a field, a sentence in many languages) is enough."""
    redacted = redact(form.format(PASSWORD))

    assert PASSWORD not in redacted
    assert redacted.split("[redacted:")[0] == form.format("\0").split("\0")[0]


@pytest.mark.parametrize("form", NAMED_TOKEN)
@pytest.mark.parametrize("value", [TOKEN, _text(32, HEX), _text(32, BASE32)])
def test_a_token_leaves_by_the_name_beside_it(form: str, value: str) -> None:
    """A name that says token, key or secret redacts a random value, whatever its alphabet."""
    assert value not in redact(form.format(value))


@pytest.mark.parametrize("text", LOOKALIKES)
def test_a_lookalike_stays_byte_for_byte(text: str) -> None:
    """Digests, ids, placeholders, references, code and prose are memory, not secrets."""
    assert redact(text) == text
    assert is_clean(text)


def test_the_names_of_rules_cover_sixty_kinds_and_more() -> None:
    """The catalogue is broad, and every rule's placeholder has a form no rule matches."""
    assert len(RULES) >= 60
    for rule in RULES:
        placeholder = f"[redacted:{rule}]"
        assert redact(f"password={placeholder} {placeholder}@x:{placeholder}") == (
            f"password={placeholder} {placeholder}@x:{placeholder}"
        )


def test_the_kind_is_named_by_the_rule() -> None:
    """The placeholder says what was there, and findings say where."""
    token = PLATFORM["github-token"]
    text = f"push with {token} now"

    (found,) = findings(text)

    assert (found.rule, found.start, found.end) == ("github-token", 10, 10 + len(token))
    assert redact(text) == "push with [redacted:github-token] now"


@pytest.mark.parametrize(
    "begin", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", "\\\\n"])
@pytest.mark.parametrize("ended", [True, False])
def test_a_key_block_leaves_whole(begin: str, newline: str, ended: bool) -> None:
    """A private key is one finding, also escaped in JSON and cut off before its END line."""
    lines = [_text(64, seed=seed) for seed in range(4)]
    block = newline.join([f"-----BEGIN {begin}-----", *lines, "L4stL1ne" + _text(20)])
    tail = f"{newline}-----END {begin}-----" if ended else ""

    redacted = redact(f"before\n{block}{tail}\n\nafter the key")

    assert not any(line[:16] in redacted for line in lines)
    assert "L4stL1ne" not in redacted
    assert redacted.startswith("before\n")
    assert redacted.endswith("after the key")


def test_a_token_split_over_lines_leaves_whole() -> None:
    """A continuation or an added literal does not hide half a token."""
    head, tail = "gh" + "p_" + _text(16), _text(20)

    for joint in ("\\\n", "\\\n    ", '" + "', '"\n  "', '" +\n "', "\\\\n", "=\n"):
        redacted = redact(f'T="{head}{joint}{tail}"')

        assert tail not in redacted, joint
        assert head not in redacted, joint


def test_a_token_cut_off_is_still_a_finding() -> None:
    """Logs truncate: the first part of a key is a finding as well."""
    for kind in ("github-token", "anthropic-key", "slack-token", "vault-token", "stripe-key"):
        cut = PLATFORM[kind][:26]

        for ending in ("", "…", "...", " [truncated]"):
            assert cut not in redact(f"using {cut}{ending}"), (kind, ending)


@pytest.mark.parametrize(
    "plain",
    [
        "token=" + PLATFORM["github-token"],
        json.dumps({"user": "bob", "password": PASSWORD}),
        "A long introduction. " * 5 + PLATFORM["stripe-key"] + " and what follows. " * 5,
    ],
)
def test_base64_of_a_secret_leaves_as_a_run(plain: str) -> None:
    """Long base64 is read once; if a secret is in it, the whole run goes, also over lines."""
    encoded = base64.b64encode(plain.encode()).decode()
    wrapped = "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))

    assert redact(f"echo {encoded} | base64 -d").startswith("echo [redacted:base64]")
    assert redact(wrapped).rstrip("=") == "[redacted:base64]"


def test_stored_hashes_of_passwords_leave() -> None:
    """A password hash is a credential: it can be cracked at leisure."""
    for stored in (
        "$apr1$" + _text(8) + "$" + _text(22),
        "$2b$12$" + _text(53), "$6$" + _text(8) + "$" + _text(86),
        "$argon2id$v=19$m=65536,t=3,p=4$" + _text(22) + "$" + _text(43), "{SSHA}" + _text(32),
        "pbkdf2_sha256$260000$" + _text(22) + "$" + _text(43),
    ):  # fmt: skip
        assert redact(f"admin:{stored}") == "admin:[redacted:password-hash]"


def test_a_recovery_phrase_leaves_only_where_a_word_announces_it() -> None:
    """Twelve or twenty-four plain words are a wallet after "seed phrase", and prose elsewhere."""
    words = ["ripple", "canvas", "orbit", "tunnel", "velvet", "harbor", "pencil", "mango"] * 3

    for size in (12, 24):
        phrase = " ".join(words[:size])
        assert redact(f"seed phrase: {phrase}") == "seed phrase: [redacted:recovery-phrase]"
        assert redact(f"助记词：{phrase}") == "助记词：[redacted:recovery-phrase]"
        assert redact(phrase) == phrase


def test_basic_headers_are_read_before_they_are_judged() -> None:
    """`Basic` and base64 count only if a user and a password come out."""
    encoded = base64.b64encode(b"bob:" + PASSWORD.encode()).decode()

    assert (
        redact(f"Authorization: Basic {encoded}") == "Authorization: Basic [redacted:basic-header]"
    )
    assert is_clean("Basic understanding of Kubernetes")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://u:p@ss@w0rd" + "9@h/d", "w0rd9"),
        ("password: p@ss" + "w0rd!x", "w0rd!x"),
        ("DB_PASSWORD='a,b;" + "c1&d'", "c1&d"),
        ("DB_PASSWORD=correct-horse" + "-battery-staple", "horse"),
        ('SECRET_PASSPHRASE="correct horse' + ' battery staple"', "horse"),
        ("https://x:y@z.example/ postgres://app:p%40ss%3A7D" + "NXz3KA@db/shop", "7DNXz3KA"),
    ],
)
def test_a_password_with_separators_leaves_whole(text: str, secret: str) -> None:
    """People put @, comma, semicolon and spaces into passwords."""
    assert secret not in redact(text)


def test_nul_and_lone_surrogates_are_text() -> None:
    """What a broken terminal or a cut emoji leaves behind neither raises nor is lost."""
    token = PLATFORM["github-token"]

    assert redact(f"\0\ud800{token}\udfff\0") == "\0\ud800[redacted:github-token]\udfff\0"
    assert redact("\0" * 40 + "\ud83d") == "\0" * 40 + "\ud83d"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Use the login deploy with password {}", "Tr0ub" + "4dor7"),
        ("with the password {}", "Tr0ub" + "4dor&3"),
        ("the root pw is {}", "Tr0ub" + "4dor7"),
        ("the db password is still {}", "Tr0ub" + "4dor7"),
        ("The vault passphrase is {}", "correct-horse-" + "battery-staple-9"),
        ('secret = "{}"', "s3cr3t-" + "v4lue-99"),
        ('{{"client_secret":"{}"}}', "abcd1234" + "efgh5678"),
        ("Authorization: Bearer {}", "abcdefghij" + "klmnopqrst"),
    ],
)
def test_a_word_that_names_a_credential_is_enough(text: str, secret: str) -> None:
    """Beside its noun, a chosen password need not look random to be one."""
    assert secret not in redact(text.format(secret))


@pytest.mark.parametrize(
    "text",
    [
        "the password policy is SHA256-based",
        "the password field has maxLength2 set",
        "pw is short for password",
        "Authorization: Bearer <your-token-here>",
        'curl -H "Authorization: Bearer $TOKEN"',
        "secretName: my-secret-2024",
        "the password is case-sensitive-by-default",
    ],
)
def test_talk_about_credentials_stays(text: str) -> None:
    """Prose, references and names that only mention a credential come through untouched."""
    assert redact(text) == text
