package gate

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"vestibule/internal/core/room"
	"vestibule/internal/edge/clientaddr"
)

// Asks bounds the preflights for which a site is asked. They carry no cookies, so an address prefix may ask so often a
// minute, and more often for each session seen from it. It is safe for concurrent use.
//
// One visitor cannot use up the allowance of an office. A connection on which a session was seen asks on the account of
// that session first. Once the allowance of the prefix is used up, its sessions allow as many questions again, to
// connections that asked less than others. Behind a proxy, whose connections visitors share, the visitor's address
// takes the place of the connection.
type Asks struct {
	mu       sync.Mutex
	seen     *simplelru.LRU[member, sighting] // sessions of the last seenFor, the oldest first
	sessions map[prefixIn]int                 // number of them by prefix
	lines    *simplelru.LRU[line, seenOn]     // connections of sessions
	used     *simplelru.LRU[prefixIn, usage]  // by prefixes
	of       *simplelru.LRU[member, usage]    // by sessions, on their connections
	by       *simplelru.LRU[line, usage]      // by other connections
}

// Bounds of the memory. A forgotten session loosens nothing; a forgotten count lets a prefix ask again.
const (
	seenFor     = 10 * time.Minute
	maxSessions = 1 << 17
	maxAskers   = 1 << 16
)

type (
	// prefixIn is a prefix, member a session and line a connection in a room.
	prefixIn struct {
		room   room.ID
		prefix netip.Prefix
	}
	member struct {
		room room.ID
		id   uint64
	}
	line struct {
		room room.ID
		conn netip.AddrPort
	}
	// sighting is when and where a session was seen.
	sighting struct {
		at   time.Time
		from prefixIn
	}
	seenOn struct {
		at      time.Time
		session uint64
	}
	// usage is the number of questions in a minute; over are those beyond the allowance.
	usage struct {
		minute  int64
		n, over int
	}
)

// Asker is who asks for a preflight, and how often it may.
type Asker struct {
	Room   room.ID
	Client netip.Addr
	Conn   netip.AddrPort // the connection of the visitor; zero for one that visitors share

	Free       bool // the room has space: there is no bound
	PerMinute  int  // questions of a prefix
	PerSession int  // further ones for each session seen from it
}

// NewAsks returns an empty memory.
func NewAsks() *Asks {
	a := &Asks{
		sessions: map[prefixIn]int{}, lines: lru[line, seenOn](maxSessions), used: lru[prefixIn, usage](maxAskers),
		of: lru[member, usage](maxAskers), by: lru[line, usage](maxAskers),
	}
	seen, err := simplelru.NewLRU(maxSessions, func(_ member, s sighting) { a.lose(s.from) })
	if err != nil {
		panic(err) // of a size that is not positive
	}
	a.seen = seen
	return a
}

func lru[K comparable, V any](size int) *simplelru.LRU[K, V] {
	l, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic(err) // as above
	}
	return l
}

// lose counts a session of a prefix less.
func (a *Asks) lose(from prefixIn) {
	if a.sessions[from]--; a.sessions[from] <= 0 {
		delete(a.sessions, from)
	}
}

// Saw records a session that was seen from an address; conn is zero for a connection that visitors share.
func (a *Asks) Saw(now time.Time, st *Stay, client netip.Addr, conn netip.AddrPort) {
	who, from := member{st.Room, st.Ticket.ID}, prefixIn{st.Room, clientaddr.Prefix(client)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if conn.IsValid() {
		a.lines.Add(line{st.Room, conn}, seenOn{now, st.Ticket.ID})
	}
	was, known := a.seen.Peek(who)
	if !known || was.from != from {
		if known {
			a.lose(was.from)
		}
		a.sessions[from]++
	}
	a.seen.Add(who, sighting{now, from})
}

// May reports whether a site may be asked for a preflight, and counts that.
func (a *Asks) May(now time.Time, q *Asker) bool {
	if q.Free {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		who, s, ok := a.seen.GetOldest()
		if !ok || now.Sub(s.at) < seenFor {
			break
		}
		a.seen.Remove(who)
	}
	minute := now.Unix() / 60
	from, by := prefixIn{q.Room, clientaddr.Prefix(q.Client)}, line{q.Room, q.Conn}
	if on, ok := a.lines.Get(by); ok && now.Sub(on.at) < seenFor {
		who := member{q.Room, on.session}
		if u := in(a.of, minute, who); u.n < q.PerSession {
			u.n++
			a.of.Add(who, u)
			return true
		}
	}
	if !by.conn.IsValid() {
		by.conn = netip.AddrPortFrom(q.Client, 0)
	}
	more := q.PerSession * a.sessions[from]
	all, own := in(a.used, minute, from), in(a.by, minute, by)
	switch {
	case all.n < q.PerMinute+more:
		all.n++
	case own.n < more-all.over:
		all.over++
	default:
		return false
	}
	own.n++
	a.used.Add(from, all)
	a.by.Add(by, own)
	return true
}

// in returns what a key has used in a minute.
func in[K comparable](of *simplelru.LRU[K, usage], minute int64, key K) usage {
	if u, _ := of.Get(key); u.minute == minute {
		return u
	}
	return usage{minute: minute}
}
