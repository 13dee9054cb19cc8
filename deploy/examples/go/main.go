// Command site is an example of a site that accepts requests only from the edges of a waiting
// room: it checks the proof in each request (Vestibule-Proof) and rejects requests sent to its
// address directly.
//
//	site --listen 127.0.0.1:8090 --keys https://shop.example/.well-known/vestibule/jwks.json \
//	    --audience http://10.0.0.5:8080 --room shop
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

func main() {
	g := &Guard{}
	listen := flag.String("listen", "127.0.0.1:8090", "host:port to serve at")
	flag.StringVar(&g.Keys, "keys", "", "URL of the edges' key set")
	flag.StringVar(&g.Audience, "audience", "", "this site, as the room's origin names it")
	flag.StringVar(&g.Room, "room", "", "the room that covers this site, empty for any")
	flag.Parse()
	srv := &http.Server{Addr: *listen, ReadHeaderTimeout: 5 * time.Second, Handler: g.Wrap(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the site") }))}
	log.Fatal(srv.ListenAndServe())
}

// Guard checks proofs. Set its fields before use.
type Guard struct {
	Keys     string // URL of the key set
	Audience string
	Room     string // "" for any

	mu    sync.Mutex
	set   jose.JSONWebKeySet
	asked time.Time
}

// Validity of cached keys, and the minimum time between fetches for unknown ones.
const (
	keysFor  = 5 * time.Minute
	askEvery = 10 * time.Second
)

// claims are the claims of a proof besides the registered ones.
type claims struct {
	jwt.Claims
	Room string `json:"room"`
}

// Wrap passes requests with a valid proof to next, and answers others with 403.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.check(r); err != nil {
			http.Error(w, "Please come in through the front door: "+err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Guard) check(r *http.Request) error {
	lines := r.Header.Values("Vestibule-Proof")
	if len(lines) != 1 {
		return errors.New("there must be one Vestibule-Proof")
	}
	t, err := jwt.ParseSigned(lines[0], []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return err
	}
	set, err := g.keys(r.Context(), t.Headers[0].KeyID)
	if err != nil {
		return err
	}
	var c claims
	if err := t.Claims(&set, &c); err != nil {
		return err
	}
	// The leeway is for clock differences; an expired proof is valid for that much longer.
	if err := c.ValidateWithLeeway(jwt.Expected{
		Issuer: "vestibule", AnyAudience: jwt.Audience{g.Audience},
		Time: time.Now(),
	}, 30*time.Second); err != nil {
		return err
	}
	if c.Expiry == nil {
		return errors.New("the proof does not expire")
	}
	if g.Room != "" && c.Room != g.Room {
		return errors.New("the proof is of another room")
	}
	return nil
}

// keys returns the key set. It is fetched again when it is old, or lacks a key.
func (g *Guard) keys(ctx context.Context, id string) (jose.JSONWebKeySet, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	age := time.Since(g.asked)
	if age < keysFor && (len(g.set.Key(id)) > 0 || age < askEvery) {
		return g.set, nil
	}
	g.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.Keys, nil)
	if err != nil {
		return g.set, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return g.set, fmt.Errorf("keys: %w", err)
	}
	defer res.Body.Close()
	var set jose.JSONWebKeySet
	if res.StatusCode != http.StatusOK {
		return g.set, fmt.Errorf("keys: %s", res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&set); err != nil {
		return g.set, fmt.Errorf("keys: %w", err)
	}
	g.set = set
	return set, nil
}
