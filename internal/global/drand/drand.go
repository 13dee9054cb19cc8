// Package drand fetches rounds of drand from its mirrors. [beacon.Verify] judges them.
package drand

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/draw/beacon"
)

// Mirrors are base URLs of drand's HTTP API, such as https://api.drand.sh.
type Mirrors []string

// fetchWithin is the timeout of a fetch from all mirrors; maxAnswer limits the body of a response.
var fetchWithin = 1500 * time.Millisecond

const maxAnswer = 4 << 10

// Fetch returns the first round after the close of entries, verified, from the first mirror that returns it. It
// asks all mirrors at once. The error holds the answer of each.
func (m Mirrors) Fetch(ctx context.Context, closes time.Time) (*draw.Beacon, error) {
	if len(m) == 0 {
		return nil, errors.New("no mirrors configured")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	type answer struct {
		round *draw.Beacon
		err   error
	}
	answers := make(chan answer, len(m)) // buffered, so that late answers block nobody
	for _, mirror := range m {
		go func() {
			b, err := fetch(ctx, mirror, closes)
			if err != nil {
				err = fmt.Errorf("%s: %w", mirror, err)
			}
			answers <- answer{b, err}
		}()
	}
	var first *draw.Beacon
	var errs []error
	for range m { // all end with ctx
		if a := <-answers; a.err != nil {
			errs = append(errs, a.err)
		} else if first == nil {
			first = a.round
			cancel()
		}
	}
	if first == nil {
		return nil, errors.Join(errs...)
	}
	return first, nil
}

// client follows no redirect.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// fetch asks one mirror.
func fetch(ctx context.Context, mirror string, closes time.Time) (*draw.Beacon, error) {
	chain := beacon.Chain()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("%s/%x/public/%d", strings.TrimSuffix(mirror, "/"), chain[:], beacon.RoundAfter(closes)), nil)
	if err != nil {
		return nil, err
	}
	q.Close = true // one request per draw
	r, err := client.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", r.StatusCode)
	}
	var response struct {
		Round     uint64
		Signature string
	}
	if err := json.Unmarshal(data, &response); err != nil {
		return nil, err
	}
	signature, err := hex.DecodeString(response.Signature)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	b := &draw.Beacon{Chain: chain, Round: response.Round, Signature: signature}
	return b, beacon.Verify(b, closes)
}
