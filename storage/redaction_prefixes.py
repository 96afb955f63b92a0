"""Credentials that carry a prefix of their own: the platforms' tokens.

Owns one table (rule, prefixes, alphabet, shortest body) and one scan over a text for all of them.
A prefix counts only where a word starts, and a body may be shorter than the platform makes it:
a log cuts keys off, and half a key is still a finding.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from storage.redaction_values import Finding, is_random, is_uuid, is_varied

_ALPHABETS: Final = {
    "alnum": "[A-Za-z0-9]",
    "word": "[A-Za-z0-9_-]",
    "dotted": "[A-Za-z0-9_.-]",
    "base64": "[A-Za-z0-9_.+/=:-]",
    "hex": "[0-9a-f-]",
    "upper": "[A-Z0-9]",
}

# rule, prefixes, alphabet, shortest body; "?" after the rule: the prefix is also an ordinary word,
# so the body has to be visibly random.
_TABLE: Final = """
anthropic-key       sk-ant-                                             word 10
openai-key          sk-proj- sk-svcacct- sk-admin- sk-None-             word 10
openrouter-key      sk-or-                                              word 10
langfuse-key        sk-lf-                                              word 10
llm-key?            sk-                                                 word 16
elevenlabs-key?     sk_                                                 alnum 24
perplexity-key      pplx-                                               word 16
xai-key             xai-                                                word 16
groq-key            gsk_                                                word 16
google-api-key      AIza                                                word 16
google-auth-key     AQ.Ab                                               word 16
google-access-token ya29.                                               dotted 16
google-refresh      1//0                                                word 20
google-oauth-secret GOCSPX-                                             word 10
huggingface-token   hf_ api_org_                                        alnum 12
replicate-token?    r8_                                                 alnum 12
tavily-key          tvly-                                               word 10
langsmith-key       lsv2_ ls__                                          word 12
e2b-key?            e2b_                                                alnum 12
voyage-key?         pa- al-                                             word 24
fireworks-key?      fw_                                                 alnum 16
cerebras-key        csk-                                                alnum 16
nvidia-key          nvapi-                                              word 16
jina-key            jina_                                               word 16
pinecone-key        pcsk_                                               word 10
firecrawl-key?      fc-                                                 alnum 16
together-key        tgp_v1_                                             word 12
bedrock-key         ABSK bedrock-api-key-                               base64 24
context7-key        ctx7sk-                                             word 12
runpod-key?         rpa_                                                alnum 16
daytona-key?        dtn_                                                alnum 16
apify-token         apify_api_                                          alnum 12
ragie-key?          tnt_ m0-                                            word 16
brave-key?          BSA                                                 word 20
logfire-token       pylf_v1_                                            word 12
wandb-key           wandb_v1_                                           word 12
github-token        ghp_ gho_ ghu_ ghs_ ghr_                            alnum 10
github-pat          github_pat_                                         word 10
gitlab-token        glpat- gldt- glrt- glrtr- glptt- glcbt- glsoat- glft- dotted 8
gitlab-token        glimt- glagent- gloas- glffct- glwt-                dotted 8
gitlab-runner-token GR1348941                                           word 10
bitbucket-token     ATBB ATCTT3                                         base64 16
atlassian-token     ATATT3                                              base64 16
sourcegraph-token   sgp_ slk_                                           word 16
slack-token         xoxa- xoxb- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xoxc- xoxd- dotted 10
slack-app-token     xapp- xwfp-                                         word 10
sendgrid-key        SG.                                                 dotted 16
mailgun-key?        key- pubkey-                                        alnum 16
brevo-key           xkeysib- xsmtpsib-                                  word 12
resend-key?         re_                                                 word 16
mailersend-key      mlsn.                                               alnum 16
twilio-key?         SK                                                  hex 24
intercom-token      dG9rO                                               base64 16
stripe-key          sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_ alnum 8
stripe-webhook      whsec_                                              base64 12
square-token        sq0atp- sq0csp- sq0idp- EAAAE EAAAl                 word 16
facebook-token?     EAA IGQV                                            alnum 40
braintree-token     access_token$production$ access_token$sandbox$      word 12
plaid-token         access-sandbox- access-production- access-development- word 16
shopify-token       shpat_ shpca_ shppa_ shpss_ shptka_                 alnum 10
razorpay-key        rzp_live_ rzp_test_                                 alnum 10
flutterwave-key     FLWSECK- FLWSECK_TEST- FLWSECK_LIVE-                word 10
easypost-key        EZAK EZTK                                           alnum 16
shippo-token        shippo_live_ shippo_test_                           alnum 12
lob-key?            live_ test_                                         alnum 24
duffel-token        duffel_live_ duffel_test_                           word 12
coinbase-key?       pdl_ polar_oat_ polar_pat_                          word 20
npm-token?          npm_                                                alnum 16
pypi-token          pypi-AgE pypi-                                      word 20
rubygems-key        rubygems_                                           hex 12
crates-token?       cio                                                 alnum 24
nuget-key?          oy2                                                 alnum 24
clojars-token       CLOJARS_                                            alnum 12
docker-token        dckr_pat_ dckr_oat_                                 word 8
jfrog-key           AKCp cmVmdGtu                                       alnum 16
aws-access-key-id   AKIA ASIA ABIA ACCA A3T                             upper 12
digitalocean-token  dop_v1_ doo_v1_ dor_v1_                             alnum 10
heroku-key          HRKU-                                               word 12
fly-token           fo1_ fm1_ fm2_ fm1r_ fm2r_                          base64 16
netlify-token       nfp_ nfc_ nfo_ nfu_                                 word 12
vercel-token?       vcp_ vck_ vca_ vcr_ vci_                            alnum 16
render-key?         rnd_                                                alnum 16
cloudflare-token?   v1.0- cfut_ cfat_ cfk_                              word 24
scaleway-key        SCW                                                 upper 16
alibaba-key         LTAI                                                alnum 10
tencent-key         AKID                                                alnum 16
yandex-key          AQVN                                                word 16
yandex-token?       t1. y0_                                             dotted 24
databricks-token    dapi dkea                                           hex 16
planetscale-token   pscale_tkn_ pscale_pw_ pscale_oauth_                dotted 10
neon-key?           napi_ neon_api_                                     word 16
supabase-key        sbp_ sb_secret_                                     word 12
mongodb-atlas-key   mdb_sa_sk_ mdb_sa_id_                               word 12
doppler-token       dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.      dotted 12
vault-token         hvs. hvb. hvr.                                      word 12
pulumi-token        pul-                                                alnum 20
onepassword-token   ops_eyJ                                             base64 16
tailscale-key       tskey-                                              word 12
defined-key         dnkey-                                              word 16
age-key             AGE-SECRET-KEY- AGE-PLUGIN-                         upper 16
openshift-token     sha256~                                             word 24
grafana-token       glsa_ glc_                                          base64 16
grafana-api-key     eyJrIjoi                                            base64 24
newrelic-key        NRAK- NRAL- NRII- NRJS- NRRA- NRSP-                 word 10
sentry-token        sntrys_ sntryu_ sntrya_ sntryi_                     base64 12
dynatrace-token     dt0c01. dt0s01. dt0s16.                             dotted 16
honeycomb-key?      hcaik_ hcamk_ hcxik_ hcxmk_                         alnum 16
axiom-token         xaat- xapt-                                         hex 16
posthog-key         phx_ phs_                                           alnum 16
statsig-key?        secret-                                             alnum 16
launchdarkly-key?   sdk-                                                hex 30
linear-key          lin_api_ lin_oauth_ lin_wh_                         alnum 10
notion-token?       ntn_ secret_                                        alnum 20
figma-token         figd_ figo_ figu_                                   word 10
airtable-token?     pat                                                 dotted 24
postman-key         PMAK-                                               hex 12
dropbox-token?      sl.                                                 word 24
contentful-token    CFPAT-                                              word 12
typeform-token      tfp_                                                word 16
readme-key          rdme_                                               alnum 16
prefect-key         pnu_ pnb_                                           alnum 16
frameio-token       fio-u-                                              word 16
adafruit-key        aio_                                                alnum 12
circleci-token      CCIPAT_ CCIPRJ_                                     word 10
buildkite-token     bkua_ bkct_ bkaj_                                   alnum 16
sonar-token         squ_ sqp_ sqa_ sqb_                                 alnum 16
scalingo-token      tk-us-                                              word 16
infracost-key       ico-                                                alnum 16
harness-token       pat. sat.                                           dotted 30
octopus-key?        API-                                                upper 16
hubspot-token       pat-na1- pat-na2- pat-eu1- pat-ap1-                 hex 12
trello-token        ATTA                                                alnum 40
mapbox-token        sk.eyJ                                              dotted 10
settlemint-token    sm_pat_ sm_aat_ sm_sat_                             alnum 10
wallet-key          xprv yprv zprv tprv                                 alnum 60
"""


_LONG: Final = 64


@dataclass(frozen=True, slots=True)
class _Prefix:
    rule: str
    body: str
    shortest: int
    ordinary: bool


def _read_table() -> dict[str, _Prefix]:
    prefixes: dict[str, _Prefix] = {}
    for line in _TABLE.strip().splitlines():
        rule, *literals, alphabet, shortest = line.split()
        for literal in literals:
            prefixes[literal] = _Prefix(
                rule.rstrip("?"), _ALPHABETS[alphabet], int(shortest), rule.endswith("?")
            )
    return prefixes


_PREFIXES: Final = _read_table()
RULES: Final = frozenset(prefix.rule for prefix in _PREFIXES.values())


def find_prefixed(text: str) -> Iterator[Finding]:
    """Every token that starts with a platform's prefix."""
    word, escaped = _scans()
    for run in _runs().finditer(text):
        yield from _find(word, text, *run.span())
    for sign, scan in escaped.items():
        if sign in text:
            yield from _find(scan, text, 0, len(text))


def _find(scan: re.Pattern[str], text: str, after: int, end: int) -> Iterator[Finding]:
    while match := scan.search(text, after, end):
        prefix = _PREFIXES[match.group(1)]
        after = match.end()
        body = _body(prefix.body).match(text, after)
        if body is None:
            continue
        value = body.group().rstrip(".:-_=/+") if "." in prefix.body else body.group()
        inside = prefix.ordinary and text[match.start(1) - 1 : match.start(1)] in {"/", "+", "_"}
        if len(value) >= prefix.shortest and not inside and _holds(prefix, value):
            after += len(value)
            yield Finding(prefix.rule, match.start(1), after)
        elif len(value) > _LONG:
            # Nothing in it is random, so no credential starts in it: never read it a second time.
            after += len(value)


def _holds(prefix: _Prefix, value: str) -> bool:
    return is_random(value) or is_uuid(value) if prefix.ordinary else is_varied(value)


@cache
def _body(alphabet: str) -> re.Pattern[str]:
    # Possessive: a body is taken whole or not at all, so nothing is ever scanned twice.
    return re.compile(f"{alphabet}++")


@cache
def _runs() -> re.Pattern[str]:
    """Unbroken characters, as many as the shortest credential: prose has hardly any."""
    return re.compile(r"[A-Za-z0-9_.$/+=:~-]{14,}+")


@cache
def _scans() -> tuple[re.Pattern[str], dict[str, re.Pattern[str]]]:
    """All prefixes as one pattern, where a word starts; and after each sign of an escape.

    After an escape (`\\n`, `\\u003d`, `%3D`, a terminal colour) a word starts though a letter
    stands before it. One lookbehind for all four would cost every character; these do not.
    """
    prefixes = _branches(_PREFIXES)
    return re.compile(f"(?<![A-Za-z0-9])({prefixes})"), {
        "\\": re.compile(rf"\\(?:[nrtbf]|u00[0-9a-f]{{2}}|x[0-9a-f]{{2}})({prefixes})"),
        "%": re.compile(f"%[0-9A-Fa-f]{{2}}({prefixes})"),
        "\x1b": re.compile(rf"\x1b\[[0-9;]{{0,12}}m({prefixes})"),
    }


def _branches(literals: Iterable[str]) -> str:
    groups: dict[str, list[str]] = defaultdict(list)
    for literal in sorted(literals, key=len, reverse=True):
        groups[literal[0]].append(re.escape(literal[1:]))
    branches = [f"{re.escape(head)}(?:{'|'.join(tails)})" for head, tails in groups.items()]
    return f"(?:{'|'.join(branches)})"
