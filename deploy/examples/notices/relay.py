#!/usr/bin/env python3
"""Passes Vestibule's notices on to Slack, Microsoft Teams and e-mail: docs/INTEGRATIONS.md, "Notices to operators".

Environment: SECRETS (whsec_..., several with spaces between them), LISTEN (host:port), and any of SLACK_URL (an incoming
webhook), TEAMS_URL (a workflow "when a Teams webhook request is received"), SMTP (host:port of a mail relay) with
MAIL_FROM and MAIL_TO.
"""
import base64, collections, email.message, hmac, http.server, json, os, smtplib, ssl, time, urllib.request

ENV = os.environ
KEYS = [base64.b64decode(s.removeprefix("whsec_"), validate=True) for s in ENV["SECRETS"].split()]
sent = collections.OrderedDict()  # (notice, receiver) that need no further attempt


def signed(headers, body):
    stamp = headers.get("Webhook-Timestamp", "")
    if not stamp.isdecimal() or abs(time.time() - int(stamp)) > 300:
        return False
    message = f"{headers.get('Webhook-Id', '')}.{stamp}.".encode() + body
    own = [b"v1," + base64.b64encode(hmac.digest(k, message, "sha256")) for k in KEYS]
    return any(hmac.compare_digest(a, b.encode()) for a in own for b in headers.get("Webhook-Signature", "").split())


def post(url, value):
    header = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(value).encode(), header), timeout=4).close()


def slack(kind, text):
    for a, b in ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"):
        text = text.replace(a, b)
    post(ENV["SLACK_URL"], {"text": text})


def teams(kind, text):
    card = {"type": "AdaptiveCard", "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "version": "1.4",
            "body": [{"type": "TextBlock", "text": text, "wrap": True}]}
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    post(ENV["TEAMS_URL"], {"type": "message", "attachments": [attachment]})


def mail(kind, text):
    m = email.message.EmailMessage()
    m["From"], m["To"], m["Subject"] = ENV["MAIL_FROM"], ENV["MAIL_TO"], " ".join(text.split())[:150]
    m.set_content(f"{text}\n\n{kind}\n")
    host, port = ENV["SMTP"].rsplit(":", 1)
    with smtplib.SMTP(host, int(port), timeout=4) as s:
        s.ehlo()
        if s.has_extn("starttls"):
            s.starttls(context=ssl.create_default_context())
        s.send_message(m)


RECEIVERS = [f for name, f in (("SLACK_URL", slack), ("TEAMS_URL", teams), ("SMTP", mail)) if name in ENV]


class Relay(http.server.BaseHTTPRequestHandler):
    timeout = 10

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(int(length)) if length.isdecimal() and int(length) <= 65536 else b""
        if not signed(self.headers, body):
            return self.answer(401)
        notice, status = json.loads(body), 204
        for pass_on in RECEIVERS:
            key = self.headers["Webhook-Id"], pass_on
            if key in sent:
                continue
            try:
                pass_on(notice["type"], notice["data"]["text"])
                sent[key] = True
            except (OSError, smtplib.SMTPException) as e:  # its text may have the address, which is a secret
                self.log_error("%s: %s", pass_on.__name__, type(e).__name__)
                status = 502  # Vestibule tries again later
        while len(sent) > 5000:
            sent.popitem(last=False)
        self.answer(status)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()


host, port = ENV.get("LISTEN", "127.0.0.1:8700").rsplit(":", 1)
server = http.server.HTTPServer((host, int(port)), Relay)
print("notices at http://%s:%d/" % server.server_address, flush=True)
server.serve_forever()
