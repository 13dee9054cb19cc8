package gate

import (
	"strings"
	"time"

	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/waiting"
)

// Requests that are no visit of a person: parts of pages, questions of programs,
// files of robots, preflights. What they are is told by the client, who may lie. So it
// makes an answer shorter and a slot harder to get, and opens nothing.

// CORS is what a browser asks before a page of another origin may send a request.
type CORS struct {
	Method  string // Access-Control-Request-Method
	Headers string // Access-Control-Request-Headers
}

// isPreflight reports whether a request is a preflight. A browser sends it without
// cookies, whoever is inside.
func (r *Request) isPreflight() bool { return r.Method == methodOptions && r.CORS.Method != "" }

// isAside reports whether a request is plainly no navigation.
func (r *Request) isAside() bool {
	if len(r.Upgrade) > 0 || r.Poll {
		return false
	}
	switch r.FetchDest {
	case "document", "iframe", "frame", "fencedframe", "object", "embed":
		return false
	case "":
		return r.isPart()
	}
	return true
}

// isPart reports whether a request is for something that no page can stand for: a
// picture, a script, the file of a robot.
func (r *Request) isPart() bool {
	switch r.FetchDest {
	case "audio", "audioworklet", "font", "image", "manifest", "paintworklet", "script", "serviceworker", "sharedworker", "style", "track", "video",
		"worker", "xslt":
		return true
	case "":
	default:
		return false
	}
	path, _, _ := strings.Cut(r.Target, "?")
	if path == "/robots.txt" || path == "/favicon.ico" {
		return true
	}
	// Browsers send no Sec-Fetch-Dest where the connection is not safe.
	kind, _, _ := strings.Cut(strings.Join(r.Accept, ","), "/")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "image", "audio", "video", "font":
		return !strings.Contains(strings.Join(r.Accept, ","), "text/html")
	}
	return strings.HasPrefix(first(r.Accept), "text/css")
}

// blockedRetry is after how long at least a browser asks again that keeps no cookies:
// each time it is somebody new.
const blockedRetry = time.Minute

// keepsNoCookies reports whether a page of ours has just loaded itself again, and came
// without the cookie that it was given, or any other.
func (r *Request) keepsNoCookies() bool {
	if len(r.Cookies) > 0 || r.Tickets != nil || r.FetchSite != "same-origin" || r.FetchUser != "" || r.FetchMode != "navigate" {
		return false
	}
	_, from, _ := strings.Cut(r.Referer, "://")
	return from == r.Host+r.Target
}

// wantsJSON reports whether the answer is to be JSON: it is asked for, or a script asks
// and takes anything.
func (r *Request) wantsJSON() bool {
	if waiting.PrefersJSON(r.Accept) {
		return true
	}
	byScript := r.FetchDest == "empty" || r.FetchDest == "" && (r.FetchMode == "cors" || r.FetchMode == "same-origin")
	return byScript && (len(r.Accept) == 0 || len(r.Accept) == 1 && strings.TrimSpace(r.Accept[0]) == "*/*")
}

func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// readers are the origins whose pages may read what the edge answers.
type readers struct {
	all   bool
	named map[string]bool
}

func newReaders(list string) readers {
	if list == "*" {
		return readers{all: true}
	}
	rd := readers{}
	for o := range strings.FieldsSeq(list) {
		if rd.named == nil {
			rd.named = map[string]bool{}
		}
		rd.named[o] = true
	}
	return rd
}

func (rd *readers) has(origin string) bool { return origin != "" && (rd.all || rd.named[origin]) }

// allow lets the page that asks read the answer, if the room says so.
func (o *Outcome) allow(r *Request, rm *roomState) {
	rd := &rm.readers
	if len(rd.named) > 0 {
		o.set("Vary", "Origin")
	}
	if !rd.has(r.Origin) {
		return
	}
	if rd.all {
		o.set("Access-Control-Allow-Origin", "*")
	} else {
		o.set("Access-Control-Allow-Origin", r.Origin)
		o.set("Access-Control-Allow-Credentials", "true")
	}
	o.set("Access-Control-Expose-Headers", "Retry-After, "+DecisionHeader+", "+TicketHeader)
}

// preflight answers whether a page of another origin may send a request that rooms
// gate. It charges nothing and gives no ticket: a preflight has no cookies, so nobody
// can be told apart by it. Pages of cors_origins may; about others the site is asked, or
// nobody. The request that follows is decided about as any.
//
// Invariant: what is not admitted reaches the site as nothing but path, origin and what
// is asked for, and brings back nothing but CORS headers (decision 62).
func (g *Gate) preflight(r *Request, o *Outcome, rooms *snapshot, in []*room.Room) {
	ours, ask := true, !r.SiteApart
	for _, m := range in {
		rm := rooms.rooms[m.Index]
		ours = ours && rm.readers.has(r.Origin)
		ask = ask && rm.Preflights == room.PreflightsSite
	}
	switch {
	case ours:
		g.Count("preflight")
		o.allow(r, rooms.rooms[in[0].Index])
		o.set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
		if h := r.CORS.Headers; h != "" {
			o.set("Access-Control-Allow-Headers", h)
		}
		o.set("Access-Control-Max-Age", "600")
		o.answerNothing()
	case ask:
		g.Count("preflight_site")
		if o.Kind = Preflights; mutant.On(mutant.PreflightPasses) {
			o.Kind = Enters
		}
	default:
		o.Refuse("preflight_refused", "Pages of this origin may not ask here.", statusForbidden)
	}
}
