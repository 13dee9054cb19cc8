package notices

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postWithin bounds an attempt.
const postWithin = 15 * time.Second

// Poster posts notices to webhooks. An editor of webhooks chooses their URLs, so it connects only to public addresses
// and those that the configuration allows, and follows no redirect.
type Poster struct {
	client *http.Client
}

// errPrivate means that the URL of a webhook leads to an address that is not public.
var errPrivate = errors.New("the address is not public: add its network to notices.networks, if it is meant")

// NewPoster returns a poster that may also connect to addresses of networks.
func NewPoster(networks []netip.Prefix) *Poster {
	dialer := &net.Dialer{
		Timeout: 5 * time.Second,
		Control: func(_, address string, _ syscall.RawConn) error { // after the name is resolved
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if !public(at.Addr()) && !within(at.Addr(), networks) {
				return errPrivate
			}
			return nil
		},
	}
	return &Poster{&http.Client{
		Timeout:       postWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: nil, DialContext: dialer.DialContext, DisableKeepAlives: true, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 5 * time.Second, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: 16 << 10,
		},
	}}
}

// special are networks beyond those that [netip.Addr] knows whose addresses are not public, or lead to others.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// public reports whether an address is one of the public Internet.
func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.Zone() == "" && a.IsGlobalUnicast() && !a.IsPrivate() && !within(a, special)
}

func within(a netip.Addr, networks []netip.Prefix) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Post makes one attempt. The text of its error names no address, which may be a secret.
func (p *Poster) Post(ctx context.Context, now time.Time, w *Webhook, n *Notice) Result {
	if why := CheckURL(w.URL); why != "" {
		return Result{Err: errors.New("the address " + why)}
	}
	body, err := n.Body()
	if err != nil {
		return Result{Err: err}
	}
	signature, err := w.Sign(now, n.ID, body)
	if err != nil {
		return Result{Err: err}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return Result{Err: errors.New("the address is not readable")}
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"Vestibule"}, "Webhook-Id": {n.ID},
		"Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {signature},
	}
	res, err := p.client.Do(r)
	if err != nil {
		return Result{Err: cause(err)}
	}
	defer res.Body.Close()
	if res.StatusCode/100 == 2 {
		return Result{Status: res.StatusCode}
	}
	return Result{
		Err: fmt.Errorf("the receiver answered %d", res.StatusCode), Status: res.StatusCode,
		Gone:       res.StatusCode == http.StatusGone,
		RetryAfter: retryAfter(now, res.Header.Get("Retry-After")),
	}
}

// cause returns the reason of a failed request without its address.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok && u.Timeout() {
		return errors.New("no answer in time")
	}
	if errors.Is(err, errPrivate) {
		return errPrivate
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New("the name of the host is not found")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if no, ok := errors.AsType[syscall.Errno](op.Err); ok {
			return fmt.Errorf("%s: %w", op.Op, no)
		}
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fmt.Errorf("the certificate is refused: %w", cert.Err)
	}
	return errors.New("the connection failed")
}

// retryAfter reads a Retry-After: seconds, or a date. It returns 0 for none.
func retryAfter(now time.Time, text string) time.Duration {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}
