package control

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
)

// operation is an operation of openapi.yaml.
type operation struct {
	id    string // operationId in the document
	route string // method, and path below Prefix
	needs Role   // the least role that may call it
	serve func(ctx context.Context, q *request) (result any, err error)
}

// call authorizes a request, reads its body and serves it.
func (o *operation) call(w http.ResponseWriter, r *http.Request, t *turns) (any, error) {
	who := principal(r.Context())
	if !who.Role.May(o.needs) {
		return nil, refusef(http.StatusForbidden, codeForbidden,
			"Not allowed: this needs the role %s, the token has %s", o.needs, who.Role)
	}
	if !who.mayIn(r.PathValue("waiting_room_id"), o.id) {
		if r.PathValue("waiting_room_id") != "" {
			return nil, errNotFound
		}
		return nil, refusef(http.StatusForbidden, codeForbidden,
			"Not allowed: this concerns all rooms, and you have some of them")
	}
	turn, err := t.take(r.Context(), who.ID)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	within, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	r = r.WithContext(within)
	q := &request{Request: r, w: w, turn: turn}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodDelete {
		if err := q.read(o.bounds()); err != nil {
			return nil, err
		}
	}
	for _, place := range []struct{ kind, id, known string }{
		{"zone", r.PathValue("zone_id"), Zone}, {"account", r.PathValue("account_id"), Account},
	} {
		if place.id != "" && place.id != place.known {
			return nil, refusef(http.StatusNotFound, codeNoRoute,
				"unknown %s %s; the only one is %s", place.kind, short(place.id), place.known)
		}
	}
	reason := r.URL.Query().Get("reason")
	if !goodReason(reason) {
		return nil, badReason()
	}
	ctx := who.as(r.Context(), r.RemoteAddr, o.id, reason)
	if r.Method != http.MethodGet || ctx.Value(currentKey{}) != nil {
		return o.serve(ctx, q)
	}
	age := &old{}
	result, err := o.serve(context.WithValue(ctx, oldKey{}, age), q)
	if err == nil && !age.at.IsZero() {
		result = dated{result, *age}
	}
	return result, err
}

// goodReason reports whether a reason can be kept.
func goodReason(text string) bool {
	return len(text) <= room.MaxReason && !strings.ContainsFunc(text, unicode.IsControl) && utf8.ValidString(text)
}

func badReason() error {
	var f faults
	f.add("/reason", "reason must be at most %d bytes of text", room.MaxReason)
	return f.err()
}

// because returns a context whose audit entries have the reason in a body, if the query gave none.
func because(ctx context.Context, body json.RawMessage) context.Context {
	var in struct{ Reason string }
	by := roomstore.ByOf(ctx)
	if json.Unmarshal(body, &in) == nil && goodReason(in.Reason) { // the operation names the faults of its body
		by.Reason = cmp.Or(by.Reason, in.Reason)
	}
	return roomstore.By(ctx, by)
}
