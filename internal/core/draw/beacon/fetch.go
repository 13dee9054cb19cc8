package beacon

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
)

// Mirrors are addresses of drand's HTTP API, such as https://api.drand.sh.
type Mirrors []string

// fetchWithin bounds a fetch, for all mirrors together, maxAnswer what one may say.
var fetchWithin = 1500 * time.Millisecond

const maxAnswer = 4 << 10

// Fetch returns the first round after entries closed, verified, from the mirror that answers first with it. All are asked at
// the same time. The error tells what each answered.
func (m Mirrors) Fetch(ctx context.Context, closes time.Time) (*draw.Beacon, error) {
	if len(m) == 0 {
		return nil, errors.New("no mirror is given")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	type answer struct {
		beacon *draw.Beacon
		err    error
	}
	answers := make(chan answer, len(m)) // nobody waits to be heard
	for _, mirror := range m {
		go func() {
			b, err := ask(ctx, mirror, closes)
			if err != nil {
				err = fmt.Errorf("%s: %w", mirror, err)
			}
			answers <- answer{b, err}
		}()
	}
	var first *draw.Beacon
	var errs []error
	for range m { // all of them end by the time of ctx
		if a := <-answers; a.err != nil {
			errs = append(errs, a.err)
		} else if first == nil {
			first = a.beacon
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

// ask asks one mirror.
func ask(ctx context.Context, mirror string, closes time.Time) (*draw.Beacon, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/%s/public/%d", strings.TrimSuffix(mirror, "/"), quicknet, RoundAfter(closes)), nil)
	if err != nil {
		return nil, err
	}
	q.Close = true // one question a draw
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
	var told struct {
		Round     uint64
		Signature string
	}
	if err := json.Unmarshal(data, &told); err != nil {
		return nil, err
	}
	signature, err := hex.DecodeString(told.Signature)
	if err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	b := &draw.Beacon{Chain: Chain(), Round: told.Round, Signature: signature}
	return b, Verify(b, closes)
}
