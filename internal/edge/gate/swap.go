package gate

import (
	"net/url"
	"slices"
	"strings"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/room"
	"vestibule/internal/core/rules"
)

// library is a library that puts the answers to its requests into the page of the site. A waiting page does not work
// there: the policy of the site's page applies to it. So the answer makes the library load the page as a whole.
type library uint8

const (
	noLibrary      library = iota
	turbo                  // loads the page itself after an answer that is not HTML
	turboFrame             // loads the page itself after a success with the meta element of page.html
	htmx                   // obeys HX-Refresh and HX-Redirect
	inertia                // obeys X-Inertia-Location with status 409
	livewire               // offers to load the page again after status 419
	livewireVisits         // puts every answer into the page, where its script starts
)

const (
	statusConflict    = 409 // of Inertia
	statusPageExpired = 419 // of Laravel
)

// sender is what a library tells in its requests.
type sender struct {
	library
	link bool   // htmx: a link was followed
	page string // htmx: the address of the page
}

// senderOf returns the sender of a request by a script; lines is reused memory.
func senderOf(r *Request, lines *[]rules.Header) (s sender) {
	if r.Fetch.Mode == modeNavigate || r.Poll || r.Tickets != nil || r.isPrefetch() || r.isPart() || r.Lines == nil {
		return s
	}
	*lines = r.Lines.AppendTo((*lines)[:0])
	for _, h := range *lines {
		if h.Name == "" || !strings.Contains("HTXhtx", h.Name[:1]) {
			continue
		}
		is := func(name string) bool { return strings.EqualFold(h.Name, name) }
		switch {
		case is("X-Turbo-Request-Id"):
			s.library = max(s.library, turbo)
		case is("Turbo-Frame"):
			s.library = turboFrame
		case is("HX-Request"):
			s.library = htmx
		case is("HX-Boosted"):
			s.link = r.isSafe()
		case is("HX-Current-URL"):
			s.page = h.Value
		case is("X-Inertia"):
			s.library = inertia
		case is("X-Livewire"):
			s.library = livewire
		case is("X-Livewire-Navigate"):
			s.library = livewireVisits
		}
	}
	byScript := r.Fetch.Dest == "empty" || r.Fetch.Mode == "cors" || r.Fetch.Mode == "same-origin"
	switch {
	case s.library == turboFrame && !r.isSafe():
		s.library = turbo
	case s.library == noLibrary && r.isSafe() && byScript && // older versions of Turbo
		len(r.Accept) == 1 && r.Accept[0] == "text/html, application/xhtml+xml":
		s.library = turbo
	}
	return s
}

// form returns the format of an answer to a library, if it has one.
func (s *sender) form(safe bool) (form, bool) {
	switch {
	case s.library == noLibrary:
		return 0, false
	case s.library == turboFrame || s.library == livewireVisits || s.library == turbo && !safe:
		return asPage, true
	}
	return asWords, true
}

// leave makes the library load the page as a whole. It returns the status of the answer, in the place of status.
func (a *answers) leave(r *Request, o *Outcome, rooms *snapshot, say *reply, status int) int {
	to := r.Target
	if !isPath(to) {
		to = rejoin(say.room.Room, o.host)
	}
	switch r.from.library {
	case htmx:
		switch {
		case r.from.link:
			o.set("HX-Redirect", to)
		case a.waitsToo(rooms, say, o, r.from.page):
			o.set("HX-Refresh", "true")
		}
	case inertia:
		if !r.isSafe() {
			if to = r.refererPath(); to == "" {
				to = rejoin(say.room.Room, o.host)
			}
		}
		o.set("X-Inertia-Location", to)
		return statusConflict
	case livewire:
		return statusPageExpired
	case turboFrame:
		return statusOK
	case noLibrary, turbo, livewireVisits:
	}
	return status
}

// waitsToo reports whether the page at an address waits in the room too. Otherwise, loading it again would be in vain,
// and without end where it sends the request by itself.
func (a *answers) waitsToo(rooms *snapshot, say *reply, o *Outcome, address string) bool {
	u, err := url.Parse(address)
	if err != nil || say.what == fullPage && o.visitor.Decision.Fresh == admission.Kept && len(say.room.bypasses) > 0 {
		return false
	}
	m := rooms.set.Match(u.Host, u.EscapedPath())
	return slices.ContainsFunc(inForce(m.Rooms()), func(r *room.Room) bool { return r.ID == say.room.ID })
}
