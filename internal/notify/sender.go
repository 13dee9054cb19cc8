// Package notify tells subscribed visitors that their turn comes: it follows the subscriptions, finds those that are
// due, and delivers a message for each by Web Push.
package notify

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/node"
)

const (
	sendWithin    = 8 * time.Second
	maxRetryAfter = 5 * time.Minute // then the turn has passed
)

// Message is a message for one browser.
type Message struct {
	Text  []byte        // JSON for the service worker
	Topic string        // replaces an earlier message of the topic that is not delivered yet
	TTL   time.Duration // the push service keeps it for
}

// Causes of a failed delivery. The set is closed: it labels a metric.
const (
	causeGone      = "gone"      // the browser has ended the subscription
	causeForbidden = "forbidden" // no push service of the configuration, or no public address
	causeRefused   = "refused"   // by the push service
	causeBusy      = "busy"      // the push service asks to come back
	causeNetwork   = "network"
	causeSealed    = "sealed" // the subscription does not open
)

var causes = []string{causeGone, causeForbidden, causeRefused, causeBusy, causeNetwork, causeSealed}

// Result is the outcome of a delivery.
type Result struct {
	Cause string // "" for success; another attempt may succeed unless it is [causeGone]
	Err   error
	After time.Duration // the push service asks for this delay
}

// sender delivers messages. It is safe for concurrent use.
type sender struct {
	client   *http.Client
	services push.Services

	mu     sync.Mutex
	tokens *push.Tokens
}

// newSender returns a sender of the fleet's identity. contact is an address of the operator.
func newSender(id *push.Identity, contact string, services push.Services, out node.Outbound) *sender {
	out.Timeout, out.KeepAlive = sendWithin, true
	return &sender{client: out.Client(), services: services, tokens: push.NewTokens(id, contact, rand.Reader)}
}

// request returns the request that tells a browser. The text of an error does not have the endpoint, which is a secret.
func (s *sender) request(now time.Time, sub *push.Subscription, m *Message) (*http.Request, Result) {
	if !s.services.Has(sub.Endpoint) {
		return nil, Result{Cause: causeForbidden, Err: errors.New("the endpoint is at no push service of the configuration")}
	}
	body, err := push.Encrypt(m.Text, sub.Public, sub.Auth, rand.Reader)
	if err != nil {
		return nil, Result{Cause: causeRefused, Err: err}
	}
	s.mu.Lock()
	authorization, err := s.tokens.Header(now, push.Origin(sub.Endpoint))
	s.mu.Unlock()
	if err != nil {
		return nil, Result{Cause: causeRefused, Err: err}
	}
	r, err := http.NewRequest(http.MethodPost, sub.Endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, Result{Cause: causeForbidden, Err: errors.New("the endpoint is not readable")}
	}
	r.Header = http.Header{
		"Authorization": {authorization}, "Content-Encoding": {"aes128gcm"}, "Content-Type": {"application/octet-stream"},
		"Ttl": {strconv.Itoa(int(m.TTL.Seconds()))}, "Urgency": {"high"}, "Topic": {m.Topic}, "User-Agent": {"Vestibule"},
	}
	return r, Result{}
}

// send makes one attempt.
func (s *sender) send(ctx context.Context, now time.Time, r *http.Request) Result {
	res, err := s.client.Do(r.WithContext(ctx))
	switch {
	case errors.Is(err, node.ErrPrivate):
		return Result{Cause: causeForbidden, Err: node.ErrPrivate}
	case err != nil:
		return Result{Cause: causeNetwork, Err: errors.New("the push service cannot be reached")}
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10) // so that the connection can be used again
	return answered(now, res)
}

// answered returns the outcome of a push service's answer.
func answered(now time.Time, res *http.Response) Result {
	err := fmt.Errorf("the push service answered %d", res.StatusCode)
	switch code := res.StatusCode; {
	case code/100 == 2:
		return Result{}
	case code == http.StatusNotFound, code == http.StatusGone:
		return Result{Cause: causeGone, Err: err}
	case code == http.StatusTooManyRequests, code/100 == 5, code == http.StatusRequestTimeout:
		return Result{
			Cause: causeBusy, Err: err, After: node.RetryAfter(now, res.Header.Get("Retry-After"), maxRetryAfter),
		}
	}
	return Result{Cause: causeRefused, Err: err}
}
