package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/core/room/match"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/origin"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Parsers of visitors' requests.
const (
	frontFast    = "fast"
	frontNetHTTP = "nethttp"
)

// Policies for PROXY headers from unlisted addresses.
const (
	headersRefused = "refuse"
	headersIgnored = "ignore"
)

// Config is the configuration of an edge.
type Config struct {
	node.Base      `mapstructure:",squash"`
	Name           string              `mapstructure:"name" doc:"name of this edge, unique in its data centre: 1 to 64 of a-z, 0-9, - and _; required"`
	DataCenter     string              `mapstructure:"data_center" doc:"data centre of this edge, the same characters; required"`
	Listen         string              `mapstructure:"listen" doc:"host:port for visitors without TLS, empty for none"`
	TLS            TLSConfig           `mapstructure:"tls"`
	NATS           node.ClientConfig   `mapstructure:"nats"`
	Proxies        []string            `mapstructure:"trusted_proxies" doc:"addresses or prefixes of load balancers with believed X-Forwarded-For and X-Forwarded-Proto"`
	Reader         string              `mapstructure:"front" doc:"reader of requests, except gRPC: fast, strict, for HTTP/1.1 and HTTP/2, or nethttp"`
	Front          FrontConfig         `mapstructure:"front_auth"`
	ProxyProtocol  ProxyProtocolConfig `mapstructure:"proxy_protocol"`
	ForwardHeaders []string            `mapstructure:"forward_headers" doc:"headers of visitors that reach the site although some sites read path, host, scheme or address from them"`
	Proof          ProofConfig         `mapstructure:"proof"`
	Geo            GeoConfig           `mapstructure:"geo"`
	Rules          RulesConfig         `mapstructure:"rules"`
	Held           HeldConfig          `mapstructure:"held"`
	Waiting        WaitingConfig       `mapstructure:"waiting"`
	Connections    ConnectionsConfig   `mapstructure:"connections"`
	Events         EventsConfig        `mapstructure:"events"`
	PushServices   []string            `mapstructure:"push_services" doc:"hosts of push services, such as push.example or *.push.example, that visitors may be notified by; as services of notify"`
	Recent         int                 `mapstructure:"recent_tickets" doc:"tickets per room with a remembered newest stamp, for lost replies: 0 to 16777216 of 100 bytes"`
	Timeouts       TimeoutConfig       `mapstructure:"timeouts"`
	DrainDelay     time.Duration       `mapstructure:"drain_delay" doc:"time from SIGTERM to the end of the listeners, for load balancers to notice: 0s to 1h"`
}

// ProxyProtocolConfig lists the peers that send a PROXY header.
type ProxyProtocolConfig struct {
	Trusted   []string `mapstructure:"trusted" doc:"addresses or prefixes of load balancers that begin every connection with a PROXY header"`
	Untrusted string   `mapstructure:"untrusted" doc:"PROXY header from any other address: refuse closes the connection, ignore drops the header"`
}

// ProofConfig controls the signed header that proves to a site that a request passed through the edge.
type ProofConfig struct {
	Enabled    bool `mapstructure:"enabled" doc:"add a proof (Vestibule-Proof) to requests to sites"`
	Remembered int  `mapstructure:"remembered" doc:"proofs kept, one per session, 1 KB each: 1 to 4194304; others are signed for each request"`
}

// GeoConfig lists the files that give rules the location of an address.
type GeoConfig struct {
	File string `mapstructure:"file" doc:"file of countries (MaxMind .mmdb) for rules; read at the start"`
	ASN  string `mapstructure:"asn_file" doc:"file of autonomous systems (.mmdb), where geo.file lacks them"`
}

// RulesConfig lists the files that rules use.
type RulesConfig struct {
	Lists    string   `mapstructure:"lists" doc:"JSON file of named lists of addresses, {\"name\": [\"10.0.0.0/8\"]}; read at the start"`
	Crawlers []string `mapstructure:"crawlers" doc:"JSON files of the address ranges of crawlers, as search engines publish them, or such lists; read at the start"`
}

// TLSConfig configures the TLS listener.
type TLSConfig struct {
	Listen string   `mapstructure:"listen" doc:"host:port for visitors with TLS"`
	Cert   []string `mapstructure:"cert" doc:"certificate files (PEM), read again when they change: a client gets the one for its name (SNI), or the first"`
	Key    []string `mapstructure:"key" doc:"key files (PEM), read again when they change: one for each of cert, in its order"`
	Least  string   `mapstructure:"min_version" doc:"lowest version of TLS: 1.2, with AEAD suites only, or 1.3"`
	HSTS   []string `mapstructure:"hsts" doc:"HOST=POLICY by host: Strict-Transport-Security over TLS, such as shop.example=max-age=31536000; includeSubDomains"`

	Redirect bool `mapstructure:"redirect" doc:"true: requests without TLS, also behind a trusted proxy, are sent on to https (308, port 443) before the line; never by front_auth"`
}

// Faults returns the faults of the settings, whose names begin with prefix.
func (c *TLSConfig) Faults(prefix string) (errs []error) {
	if c.Listen != "" {
		errs = append(errs, node.CheckAddr(prefix+"listen", c.Listen)...)
		if err := node.CheckPairs(c.Cert, c.Key); err != nil {
			errs = append(errs, fmt.Errorf("%[1]scert, %[1]skey: %w", prefix, err))
		}
		for _, file := range c.Cert {
			errs = append(errs, node.CheckFile(prefix+"cert", file)...)
		}
		for _, file := range c.Key {
			errs = append(errs, node.CheckFile(prefix+"key", file)...)
		}
	}
	if c.version() == 0 {
		errs = append(errs, fmt.Errorf("%smin_version: must be 1.2 or 1.3, got %q", prefix, c.Least))
	}
	if _, err := c.policies(); err != nil {
		errs = append(errs, fmt.Errorf("%shsts: %w", prefix, err))
	}
	return errs
}

// version returns the lowest version, 0 for an invalid setting.
func (c *TLSConfig) version() uint16 {
	switch c.Least {
	case "1.2", "":
		return tls.VersionTLS12
	case "1.3":
		return tls.VersionTLS13
	}
	return 0
}

// policies returns the values of Strict-Transport-Security by host in canonical form.
func (c *TLSConfig) policies() (map[string]string, error) {
	out := make(map[string]string, len(c.HSTS))
	for _, entry := range c.HSTS {
		name, policy, _ := strings.Cut(entry, "=")
		host, ok := match.CanonicalHost(strings.TrimSpace(name))
		if !ok || out[host] != "" {
			return nil, fmt.Errorf("must name each host once, got %q", entry)
		}
		ages := 0
		for d := range strings.SplitSeq(policy, ";") {
			d = strings.ToLower(strings.TrimSpace(d))
			age, isAge := strings.CutPrefix(d, "max-age=")
			if _, err := strconv.ParseUint(age, 10, 32); isAge && err == nil {
				ages++
			} else if d != "includesubdomains" && d != "preload" {
				return nil, fmt.Errorf("a policy has one max-age=SECONDS and may have includeSubDomains and preload, got %q", entry)
			}
		}
		if ages != 1 {
			return nil, fmt.Errorf("a policy has one max-age=SECONDS, got %q", entry)
		}
		out[host] = strings.TrimSpace(policy)
	}
	return out, nil
}

// HeldConfig bounds the long-polled requests.
type HeldConfig struct {
	Total  int `mapstructure:"total" doc:"requests held open per room: 0 to 1048576"`
	Prefix int `mapstructure:"per_prefix" doc:"requests held open per address prefix (IPv4 /24, IPv6 /56): 1 to 1048576"`
}

// WaitingConfig bounds the waiting visitors of one neighbourhood.
type WaitingConfig struct {
	Prefix int `mapstructure:"per_prefix" doc:"waiting visitors counted anew per minute and address prefix: 1 to 1048576; further ones keep their place uncounted"`
}

// ConnectionsConfig bounds visitors' connections.
type ConnectionsConfig struct {
	Total int `mapstructure:"total" doc:"connections of visitors: up to 1048576, 0 for two thirds of the limit of open files"`
}

// EventsConfig bounds the event streams of waiting pages.
type EventsConfig struct {
	Total  int `mapstructure:"total" doc:"event streams of this edge: 0 to 1048576; other pages poll"`
	Prefix int `mapstructure:"per_prefix" doc:"event streams per address prefix: 1 to 1048576"`
}

// TimeoutConfig holds the timeouts for visitors and origins.
type TimeoutConfig struct {
	Header   time.Duration `mapstructure:"header" doc:"for a visitor to send headers, or to read an answer of the edge: 100ms to 1h, as all timeouts"`
	Idle     time.Duration `mapstructure:"idle" doc:"for an idle connection of a visitor, and for a body or an answer to make progress"`
	Dial     time.Duration `mapstructure:"dial" doc:"for a connection to an origin"`
	Response time.Duration `mapstructure:"response" doc:"for an origin to begin its answer"`
	Shutdown time.Duration `mapstructure:"shutdown" doc:"for requests in flight when the edge stops"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Base:          node.DefaultBase("edge"),
		Listen:        ":8080",
		NATS:          node.DefaultClient(),
		TLS:           TLSConfig{Least: "1.2"},
		Reader:        frontFast,
		Front:         FrontConfig{Form: formHeaders, Prefix: "/decide", Redirect: "@site", Hold: 500 * time.Millisecond},
		ProxyProtocol: ProxyProtocolConfig{Untrusted: headersRefused},
		Proof:         ProofConfig{Remembered: 1 << 16},
		Held:          HeldConfig{Total: 4096, Prefix: 256},
		Waiting:       WaitingConfig{Prefix: 6000},
		Events:        EventsConfig{Total: 20_000, Prefix: 1024},
		PushServices:  push.DefaultServices,
		Recent:        1 << 16,
		Timeouts: TimeoutConfig{
			Header: 5 * time.Second, Idle: time.Minute, Dial: 3 * time.Second, Response: time.Minute, Shutdown: 5 * time.Second,
		},
		DrainDelay: 5 * time.Second,
	}
}

// Validate implements [node.Config].
func (c *Config) Validate() []error {
	errs := append(c.Base.Validate(), c.NATS.Validate("nats")...)
	if err := wire.CheckName(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("name: %w", err))
	}
	if err := wire.CheckName(c.DataCenter); err != nil {
		errs = append(errs, fmt.Errorf("data_center: %w", err))
	}
	if c.Listen == "" && c.TLS.Listen == "" && c.Front.Listen == "" {
		errs = append(errs, errors.New("listen, tls.listen, front_auth.listen: at least one must be given"))
	}
	if c.Reader != frontFast && c.Reader != frontNetHTTP {
		errs = append(errs, fmt.Errorf("front: must be %s or %s, got %q", frontFast, frontNetHTTP, c.Reader))
	}
	errs = append(errs, c.TLS.Faults("tls.")...)
	errs = append(errs, c.Front.validate(c.Proxies)...)
	if c.Listen != "" {
		errs = append(errs, node.CheckAddr("listen", c.Listen)...)
	}
	for _, f := range [][2]string{{"geo.file", c.Geo.File}, {"geo.asn_file", c.Geo.ASN}, {"rules.lists", c.Rules.Lists}} {
		if f[1] != "" {
			errs = append(errs, node.CheckFile(f[0], f[1])...)
		}
	}
	for _, file := range c.Rules.Crawlers {
		errs = append(errs, node.CheckFile("rules.crawlers", file)...)
	}
	if _, err := clientaddr.ParseProxies(c.Proxies); err != nil {
		errs = append(errs, fmt.Errorf("trusted_proxies: %w", err))
	}
	if _, err := clientaddr.ParseProxies(c.ProxyProtocol.Trusted); err != nil {
		errs = append(errs, fmt.Errorf("proxy_protocol.trusted: %w", err))
	}
	if u := c.ProxyProtocol.Untrusted; u != headersRefused && u != headersIgnored {
		errs = append(errs,
			fmt.Errorf("proxy_protocol.untrusted: must be %s or %s, got %q", headersRefused, headersIgnored, u))
	}
	if why := push.Services(c.PushServices).Check(); why != "" {
		errs = append(errs, errors.New("push_services: "+why))
	}
	errs = append(errs, origin.CheckForward(c.ForwardHeaders)...)
	return append(errs, c.checkBounds()...)
}

// checkBounds returns an error for each number or duration out of range.
func (c *Config) checkBounds() (errs []error) {
	for _, n := range []struct {
		key      string
		n        int
		min, max int
	}{
		{"held.total", c.Held.Total, 0, 1 << 20},
		{"held.per_prefix", c.Held.Prefix, 1, 1 << 20},
		{"waiting.per_prefix", c.Waiting.Prefix, 1, 1 << 20},
		{"connections.total", c.Connections.Total, 0, 1 << 20},
		{"events.total", c.Events.Total, 0, 1 << 20},
		{"events.per_prefix", c.Events.Prefix, 1, 1 << 20},
		{"recent_tickets", c.Recent, 0, 1 << 24},
		{"proof.remembered", c.Proof.Remembered, 1, 1 << 22},
	} {
		if n.n < n.min || n.n > n.max {
			errs = append(errs, fmt.Errorf("%s: must be %d to %d, got %d", n.key, n.min, n.max, n.n))
		}
	}
	for _, d := range []struct {
		key string
		d   time.Duration
	}{
		{"timeouts.header", c.Timeouts.Header},
		{"timeouts.idle", c.Timeouts.Idle},
		{"timeouts.dial", c.Timeouts.Dial},
		{"timeouts.response", c.Timeouts.Response},
		{"timeouts.shutdown", c.Timeouts.Shutdown},
	} {
		if d.d < 100*time.Millisecond || d.d > time.Hour {
			errs = append(errs, fmt.Errorf("%s: must be 100ms to 1h, got %v", d.key, d.d))
		}
	}
	if c.DrainDelay < 0 || c.DrainDelay > time.Hour {
		errs = append(errs, fmt.Errorf("drain_delay: must be 0s to 1h, got %v", c.DrainDelay))
	}
	return errs
}

// FrontConfig configures the decision service: a server in front of the site (nginx, HAProxy, Caddy, Envoy) asks the
// edge about every request and serves the site itself.
type FrontConfig struct {
	Listen   string        `mapstructure:"listen" doc:"host:port of the decision service for servers in front of the site, without TLS; only trusted_proxies may ask"`
	Form     string        `mapstructure:"form" doc:"form of the question: headers, accel (nginx), prefix or grpc (Envoy)"`
	Prefix   string        `mapstructure:"prefix" doc:"with form prefix: the prefix of the visitor's path"`
	Redirect string        `mapstructure:"redirect" doc:"with form accel: X-Accel-Redirect of a request that may enter"`
	Hold     time.Duration `mapstructure:"hold" doc:"how long a question is held for the visitor's turn: 1ms to 25s, less than the front waits"`
}

// Forms in which a front describes the visitor's request. A listener accepts one form only.
const (
	// formHeaders: X-Forwarded-Method, -Proto, -Host and -Uri name the request; method, path and query of the
	// question are ignored.
	formHeaders = "headers"

	// formAccel: the question is the visitor's, without its body. X-Accel-Redirect admits it, whatever the status.
	formAccel = "accel"

	// formGRPC: the question is a call of Envoy's ext_authz, with fields that name the request.
	formGRPC = "grpc"

	// formPrefix: like accel, with a prefix before the path. The status 200 admits the request.
	formPrefix = "prefix"
)

func (c *FrontConfig) validate(proxies []string) []error {
	if c.Listen == "" {
		return nil
	}
	errs := node.CheckAddr("front_auth.listen", c.Listen)
	if len(proxies) == 0 {
		errs = append(errs, errors.New("trusted_proxies: must list the clients of front_auth.listen"))
	}
	switch c.Form {
	case formHeaders, formAccel, formPrefix, formGRPC:
	default:
		errs = append(errs,
			fmt.Errorf("front_auth.form: must be %s, %s, %s or %s, got %q", formHeaders, formAccel, formPrefix, formGRPC, c.Form))
	}
	if p := c.Prefix; !strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") || strings.HasPrefix(p, "/.well-known") ||
		strings.ContainsAny(p, "?#% ") {
		errs = append(errs, fmt.Errorf("front_auth.prefix: must be a path like /decide, got %q", p))
	}
	if c.Redirect == "" || strings.ContainsFunc(c.Redirect, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		errs = append(errs,
			fmt.Errorf("front_auth.redirect: must be a named location or a path of nginx, got %q", c.Redirect))
	}
	if c.Hold < time.Millisecond || c.Hold > 25*time.Second {
		errs = append(errs, fmt.Errorf("front_auth.hold: must be 1ms to 25s, got %v", c.Hold))
	}
	return errs
}

// Doubts implements [node.Doubter]. It returns why NATS cannot be used now.
func (c *Config) Doubts() []string {
	return node.DoubtNATS("nats", &c.NATS, c.Name, natsbus.NodeInbox(natsbus.RoleEdge, c.DataCenter, c.Name),
		natsbus.DocumentsStream)
}
