package control

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"vestibule/internal/core/room"
	"vestibule/internal/core/rules"
	"vestibule/internal/global/roomstore"
)

// Principal is an authenticated client.
type Principal struct {
	ID    string // of the token, or "oidc:" and the subject of a person
	Name  string
	Role  Role
	Rooms []string `json:",omitempty"` // IDs of the only rooms; none for all
}

// mayIn reports whether an operation on a room, "" for none, concerns only rooms of the principal.
func (who Principal) mayIn(id, operation string) bool {
	return len(who.Rooms) == 0 || id != "" && slices.Contains(who.Rooms, id) || id == "" && forAnyRooms[operation]
}

// forAnyRooms are the operations without a room in the path that principals with some rooms may call. Lists show only
// their rooms.
var forAnyRooms = map[string]bool{
	"verify-token": true, "create-console-link": true, "waiting-room-list-waiting-rooms-account": true, "waiting-room-list-waiting-rooms": true, "list-status": true,
	"waiting-room-get-zone-settings": true, "waiting-room-create-a-custom-waiting-room-page-preview": true, "get-fleet": true, "get-visitor": true,
}

// only returns the rooms of the principal.
func (who Principal) only(rooms []*roomstore.Room) []*roomstore.Room {
	if len(who.Rooms) == 0 {
		return rooms
	}
	return slices.DeleteFunc(slices.Clone(rooms), func(r *roomstore.Room) bool { return !slices.Contains(who.Rooms, room.PublicID(r.Known())) })
}

// expression returns a rule's expression as the principal may see it. Literals may be secrets, such as the value of a
// header that programs send, so a viewer does not see them.
func (who Principal) expression(text string) string {
	if who.Role == Viewer {
		return rules.Mask(text)
	}
	return text
}

type principalKey struct{}

func principal(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// authenticate lets requests with a valid token through.
func (t *tokens) authenticate(next http.Handler, out *envelope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer {
			text = r.Header.Get("X-Auth-Key") // X-Auth-Email adds nothing to the key
		}
		who, err := t.check(r.Context(), Source(r.RemoteAddr), strings.TrimSpace(text), r.Method == http.MethodGet)
		if err != nil {
			if explain(err).Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="vestibule"`)
			}
			out.fail(w, err)
			return
		}
		base := "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
		ctx := context.WithValue(r.Context(), previewHost{}, base)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, principalKey{}, who)))
	})
}

// Source returns the address that failures are counted for: a /64 network for IPv6.
func Source(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}

// Throttle bounds how many invalid tokens an address may try. It never judges a valid token, so that a neighbour cannot
// lock anybody out. It is safe for concurrent use.
type Throttle struct {
	mu     sync.Mutex
	minute time.Time // in which told failures were the first of their addresses
	told   int
	by     *simplelru.LRU[string, *failures]
}

type failures struct {
	since time.Time
	n     int
}

const (
	maxFailures    = 10 // per address
	failuresWithin = time.Minute
	maxSources     = 10_000
	maxTold        = 30
)

// NewThrottle returns a throttle that has seen nothing.
func NewThrottle() *Throttle {
	by, err := simplelru.NewLRU[string, *failures](maxSources, nil)
	if err != nil {
		panic(err) // for a size below 1
	}
	return &Throttle{by: by}
}

// wait returns how long an address has to wait.
func (t *Throttle) wait(now time.Time, from string) time.Duration {
	f, ok := t.by.Get(from)
	if !ok || f.n < maxFailures {
		return 0
	}
	return max(0, failuresWithin-now.Sub(f.since))
}

// Failed records an invalid token, and returns how long the address has to wait.
func (t *Throttle) Failed(now time.Time, from string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait := t.wait(now, from); wait > 0 {
		return wait
	}
	f, ok := t.by.Get(from)
	if !ok || now.Sub(f.since) >= failuresWithin {
		f = &failures{since: now}
		t.by.Add(from, f)
	}
	f.n++
	return 0
}

// First reports whether the last failure of an address was its first within a minute. It does so for at most maxTold
// addresses a minute, which bounds the entries about them.
func (t *Throttle) First(now time.Time, from string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.by.Peek(from)
	if !ok || f.n != 1 || now.Sub(f.since) >= failuresWithin {
		return false
	}
	if now.Sub(t.minute) >= failuresWithin {
		t.minute, t.told = now, 0
	}
	t.told++
	return t.told <= maxTold
}
