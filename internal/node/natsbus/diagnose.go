package natsbus

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// FaultError is why a node cannot use a NATS server, for people: the server, the cause and the next step.
type FaultError struct {
	Server string // without a password
	Cause  string
	Step   string
}

func (f *FaultError) Error() string { return fmt.Sprintf("%s: %s; %s", f.Server, f.Cause, f.Step) }

// Streams that nodes use, for the diagnosis.
const (
	DocumentsStream = "KV_" + documentsBucket
	LeasesStream    = "KV_" + leasesBucket
)

// Diagnose connects once to each server of the options and asks JetStream about a stream, "" for none. It returns nil
// if one server works, otherwise the [*FaultError] of the first.
func Diagnose(ctx context.Context, o Options, stream string) error {
	if o.InProcess != nil {
		return nil
	}
	var first error
	for server := range strings.SplitSeq(o.URL, ",") {
		err := diagnose(ctx, o, strings.TrimSpace(server), stream)
		if err == nil {
			return nil
		}
		first = cmp.Or(first, err)
	}
	return first
}

func diagnose(ctx context.Context, o Options, server, stream string) error {
	shown := server
	if u, err := url.Parse(server); err == nil {
		shown = u.Redacted()
	}
	fault := func(cause, step string) error { return &FaultError{shown, cause, step} }
	own, err := o.certificate(time.Now())
	if err != nil {
		return fault(err.Error(), "give this node a certificate of its name and role that is valid (nats-config write)")
	}
	if err := reach(ctx, server); err != nil { // the client hides why
		cause, step := o.explain(server, own, err)
		return fault(cause, step)
	}
	refusals := make(chan error, 8)
	opts := append(o.identity(), nats.NoReconnect(), nats.Timeout(2*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refusals <- err:
			default:
			}
		}))
	nc, err := nats.Connect(server, opts...)
	if err != nil {
		if isTimeout(err) || errors.Is(err, nats.ErrTimeout) { // it was reached
			err = errSilent
		}
		cause, step := o.explain(server, own, err)
		return fault(cause, step)
	}
	defer nc.Close()
	if rtt, err := nc.RTT(); err == nil && rtt > MaxRoundTrip {
		return fault(fmt.Sprintf("slow: a way there and back takes %v, at most %v may pass", rtt.Round(10*time.Millisecond),
			MaxRoundTrip), "run this process near its NATS server, and connect the servers with each other")
	}
	if stream == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, api(o.Domain)+"STREAM.INFO."+stream, nil)
	var refused error
	select {
	case refused = <-refusals:
	default:
	}
	domain := "the server's own JetStream domain"
	if o.Domain != "" {
		domain = fmt.Sprintf("the JetStream domain %q (domain)", o.Domain)
	}
	var r jetstream.StreamInfo
	var failure struct {
		Error *jetstream.APIError `json:"error"`
	}
	switch {
	case refused != nil && strings.Contains(refused.Error(), "ermissions"):
		return fault(fmt.Sprintf("the server lets this node in%s, but not to %s in %s", certified(own), stream, domain),
			"give this node the certificate or password of its own name and role, or correct domain (documents with the servers of nats-config)")
	case errors.Is(err, nats.ErrNoResponders) && o.Domain != "":
		return fault("it knows no "+domain,
			"correct domain: documents with the servers of nats-config, hub beside a server of global's own, else none; or connect the leaf node")
	case errors.Is(err, nats.ErrNoResponders):
		return fault("JetStream is off", "turn it on in nats-server (jetstream {}), or name a server that has it")
	case err != nil:
		return fault("no answer of "+domain+": "+err.Error(),
			"see whether a majority of its servers runs, or reload the servers of global once more (vestibule nats-config verify)")
	case json.Unmarshal(m.Data, &failure) == nil && failure.Error != nil &&
		failure.Error.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return fault("JetStream is off for the account of this node", "turn it on in nats-server (jetstream: enabled)")
	case failure.Error != nil && failure.Error.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabled:
		return fault("JetStream is off", "turn it on in nats-server (jetstream {})")
	case json.Unmarshal(m.Data, &r) != nil:
		return fault("its answer about "+stream+" is not of JetStream", "name a nats-server")
	}
	return nil
}

// errSilent means that a server accepts a connection and says nothing. A NATS server speaks first.
var errSilent = errors.New("it says nothing")

// reach opens a connection to a server, reads how it begins and closes it.
func reach(ctx context.Context, server string) error {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "ws" || u.Scheme == "wss" {
		return nil //nolint:nilerr // the client tells
	}
	port := cmp.Or(u.Port(), "4222")
	c, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	lines, begun := bufio.NewReader(c), time.Now()
	for _, wait := range []time.Duration{2 * time.Second, 50 * time.Millisecond} { // INFO, and an error right behind it
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		switch line, err := lines.ReadString('\n'); {
		case strings.HasPrefix(line, "-ERR"):
			return errors.New(strings.TrimSpace(line))
		case strings.HasPrefix(line, "INFO"):
		case wait < time.Second || line != "": // the client tells
			return nil
		case isTimeout(err),
			errors.Is(err, io.EOF) && time.Since(begun) > time.Second: // with handshake_first it closes after two seconds
			return errSilent
		default:
			return err
		}
	}
	return nil
}

// certified names the uses of the node's certificate, nil for none.
func certified(c *x509.Certificate) string {
	if c != nil && len(c.DNSNames) > 0 {
		return " as " + strings.Join(c.DNSNames, ", ")
	}
	return ""
}

// certificate returns the node's certificate, nil for none, or why it cannot work.
func (o *Options) certificate(now time.Time) (*x509.Certificate, error) {
	if o.Cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, fmt.Errorf("cert, key: %w", err)
	}
	switch c := pair.Leaf; {
	case now.After(c.NotAfter):
		return nil, fmt.Errorf("the certificate of this node (cert) ended on %s", c.NotAfter.UTC().Format(time.DateTime))
	case now.Before(c.NotBefore):
		return nil, fmt.Errorf("the certificate of this node (cert) begins on %s: see the clock of this machine",
			c.NotBefore.UTC().Format(time.DateTime))
	default:
		return c, nil
	}
}

// explain returns the cause of a failed connection of a node with its own certificate, nil for none, and what to do
// next.
func (o *Options) explain(server string, own *x509.Certificate, err error) (cause, step string) {
	text := err.Error()
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "no machine is called " + dns.Name, "correct the host (url)"
	}
	if u, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if o.CA == "" {
			return fmt.Sprintf("the server's certificate is of %q, which this machine does not trust", u.Cert.Issuer.CommonName),
				"set ca to the certificate of that authority (ca.crt of nats-config)"
		}
		return fmt.Sprintf("the server's certificate is of %q, which is not in ca", u.Cert.Issuer.CommonName),
			"give both ends certificates of one authority"
	}
	if h, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("the server's certificate is not for %s, but for %s", h.Host, names(h.Certificate)),
			"use one of these names (url), or write the name into the certificate (server_names)"
	}
	if c, ok := errors.AsType[x509.CertificateInvalidError](err); ok && c.Reason == x509.Expired {
		return fmt.Sprintf("the server's certificate is not valid now, but from %s until %s",
			c.Cert.NotBefore.UTC().Format(time.DateTime),
			c.Cert.NotAfter.UTC().Format(time.DateTime)), "renew it and reload the server, or set the clock of this machine"
	}
	const clients = "clients use 4222, not 7422, 6222 or 8222"
	switch {
	case errors.Is(err, errSilent):
		return "what listens there does not speak as a NATS server to clients",
			"correct the port (url; " + clients + "), or remove handshake_first from the server's tls"
	case strings.Contains(text, "maximum "):
		return "the server takes no more connections: " + text,
			"raise its max_connections, or see who has them (/connz of its monitor)"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there", "start nats-server, or correct host and port (url; clients use 4222)"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server speaks no TLS, and this node wants it",
			"use nats:// without ca and cert, or give the server certificates"
	case errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		return "the server refuses the credentials of this node: " + text, "issue new ones (creds)"
	case strings.Contains(text, "certificate required"), o.Cert == "" && strings.Contains(text, "after TLS handshake"):
		return "the server asks for a certificate, and this node has none", "set cert and key, and tls:// in url"
	case strings.Contains(text, "unknown certificate authority"), strings.Contains(text, "bad certificate"),
		strings.Contains(text, "after TLS handshake"):
		return "the server does not trust the certificate of this node (cert)",
			"use a certificate of the server's authority (nats-config write)"
	case strings.Contains(text, "expired certificate"):
		return "the server says that the certificate of this node (cert) has ended", "renew it, or set the server's clock"
	case errors.Is(err, nats.ErrAuthorization):
		if o.Cert == "" && o.Creds == "" && !strings.Contains(server, "@") {
			return "the server asks for a password or certificate, and this node has none",
				"put user and password into url, or set creds, or cert and key"
		}
		return "the server does not know the user of this node" + certified(own),
			"name it in nats-config write and reload the server, or correct the password (url) or creds"
	case strings.Contains(text, "first record does not look like a TLS handshake"),
		strings.Contains(text, "expected 'INFO'"), errors.Is(err, nats.ErrNoInfoReceived),
		strings.Contains(text, "attempted to connect to"):
		return "this is not the port of NATS clients: " + text, "correct the port (url; " + clients + ")"
	case isTimeout(err), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no answer: a firewall, or the machine is off", "open the port between the machines, or correct the host (url)"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return "the server closed the connection", "read its log: it says why"
	}
	return text, "correct the address (url), or read the log of the server"
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// names lists the uses of a certificate.
func names(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) > 5 {
		all = append(all[:5:5], "…")
	}
	return strings.Join(all, ", ")
}

// inspectEvery is the interval of diagnoses while a node cannot use NATS.
const inspectEvery = 5 * time.Second

// inspect diagnoses the connection while it is down or JetStream does not answer, until the connection is closed.
func (c *Conn) inspect(o Options) {
	defer close(c.link.inspected)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-c.link.closed
		cancel()
	}()
	wait := time.NewTimer(time.Second) // a server that starts at the same time
	defer wait.Stop()
	for proved := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		wait.Reset(inspectEvery)
		up := c.link.up.Load()
		if proved = proved && up; proved {
			continue
		}
		err := Diagnose(ctx, o, o.Stream)
		if ctx.Err() != nil {
			return
		}
		switch f, faulty := errors.AsType[*FaultError](err); {
		case faulty && up == c.link.up.Load():
			if c.link.setFault(f.Error()) {
				c.log.Error("NATS cannot be used, retrying",
					slog.String("server", f.Server), slog.String("cause", f.Cause), slog.String("next_step", f.Step))
			}
		case err == nil && up:
			proved = true
			fallthrough
		default:
			c.link.setFault("")
		}
	}
}

// setFault sets why NATS cannot be used, or "", and reports whether that changed to another fault.
func (l *link) setFault(why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := why != "" && why != l.fault
	l.fault = why
	return news
}

// Fault returns why this node cannot use NATS, with the server and the next step; "" if it can, or for unknown. It
// never blocks.
func (c *Conn) Fault() string {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.link.fault
}
