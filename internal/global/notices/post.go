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
	"strconv"
	"syscall"
	"time"

	"vestibule/internal/node"
)

// postWithin bounds an attempt.
const postWithin = 15 * time.Second

// Poster posts notices to webhooks. An editor of webhooks chooses their URLs, so it connects only to public addresses
// and those that the configuration allows, and follows no redirect.
type Poster struct {
	out    node.Outbound
	client *http.Client
}

// errPrivate has the advice on [node.ErrPrivate].
var errPrivate = errors.New("the address is not public: if it is meant, add its network to notices.networks (--notices-networks)")

// NewPoster returns a poster that may also connect to addresses of networks.
func NewPoster(networks []netip.Prefix) *Poster {
	out := node.Outbound{Networks: networks, Timeout: postWithin}
	return &Poster{out, out.Client()}
}

// Refuses returns why this poster connects to no address of a URL with an IP address, nil if it does. Where a name
// leads is known once a notice is posted.
func (p *Poster) Refuses(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return nil //nolint:nilerr // CheckURL says it
	}
	host := u.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if a, err := netip.ParseAddr(host); err == nil && !p.out.Allows(a) {
		return errPrivate
	}
	return nil
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
		RetryAfter: node.RetryAfter(now, res.Header.Get("Retry-After"), maxRetryAfter),
	}
}

// cause returns the reason of a failed request without its address.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok && u.Timeout() {
		return errors.New("no answer in time")
	}
	if errors.Is(err, node.ErrPrivate) {
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
