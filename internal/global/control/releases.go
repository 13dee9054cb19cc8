package control

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
)

// releaseService serves releases of paused rooms.
type releaseService struct {
	*catalog
	clock
	controls *controls
	numbers  func(ctx context.Context, id room.ID) (n Numbers, ok bool)
}

// errSame means that the requested release exists already.
var errSame = errors.New("the same release")

func (s *releaseService) list(ctx context.Context, q *request) (any, error) {
	r, c, err := s.controls.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	out := []api.Release{}
	if k := releaseOf(c.Rooms[q.room()].At(s.fleet())); k != nil {
		out = append(out, s.show(ctx, r.TicketName(), k))
	}
	return out, nil
}

// readRelease returns the requested release, and whether it may replace an open one.
func readRelease(ctx context.Context, q *request) (want room.Release, replace bool, err error) {
	var f faults
	m := f.object("", q.body, "people", "reason", "replace")
	want.By = principal(ctx).Name
	n, ok := f.whole("/people", m["people"])
	if _, given := m["people"]; ok && (n < 1 || n > room.MaxRelease) || !given {
		f.add("/people", "people must be 1 to %d, got %d", room.MaxRelease, n)
	}
	want.N = n
	want.Reason, _ = f.text("/reason", m["reason"])
	replace, _ = f.flag("/replace", m["replace"])
	want.Key = q.Header.Get("Idempotency-Key")
	if f.n == 0 {
		check := room.Control{Pause: &room.Pause{Mark: room.Mark{Since: 1}, Release: &want}}
		want.ID = 1
		for _, err := range check.Check() {
			f.add("", "%v", err)
		}
	}
	return want, replace, f.err()
}

func (s *releaseService) create(ctx context.Context, q *request) (any, error) {
	state, r, err := s.read(ctx, q.room())
	if err != nil {
		return nil, err
	}
	want, replace, err := readRelease(ctx, q)
	if err != nil {
		return nil, err
	}
	ctx = because(ctx, q.body)
	var made room.Release
	_, err = s.controls.change(ctx, state, q.room(), func(control *room.Control) error {
		if control.Pause == nil {
			return refusef(http.StatusConflict, codeNotNow,
				"the room is not paused, and admits visitors within its limits: pause it by vestibule pause, or PATCH of its controls")
		}
		pause := *control.Pause
		if before := pause.Release; before != nil {
			if want.Key != "" && before.Key == want.Key {
				if made = *before; made.N != want.N {
					return refusef(http.StatusConflict, codeNotNow, "the release that this key asked for is of %d people, not of %d",
						made.N, want.N)
				}
				return errSame
			}
			if now := s.show(ctx, r.TicketName(), before); !replace && (now.State == api.Waiting || now.State == api.Open) {
				return refusef(http.StatusConflict, codeNotNow,
					"release %d, of %d people, is %s: wait until they are in, or let replace be true to end it", before.ID, before.N,
					now.State)
			}
			if before.Key != "" {
				pause.Keys = append(slices.Clone(pause.Keys), before.Key)
				pause.Keys = pause.Keys[max(0, len(pause.Keys)-room.MaxKeys):]
			}
		}
		if want.Key != "" && slices.Contains(control.Pause.Keys, want.Key) {
			return refusef(http.StatusConflict, codeNotNow, "the release that this key asked for was followed by another one")
		}
		made = want
		made.At = s.fleet()
		made.ID = uint64(max(1, s.now().UnixMilli()))
		if pause.Release != nil {
			made.ID = max(made.ID, pause.Release.ID+1)
		}
		pause.Release, control.Pause = &made, &pause
		return nil
	})
	if err != nil && !errors.Is(err, errSame) {
		return nil, err
	}
	return s.show(ctx, r.TicketName(), &made), nil
}

// show returns a release with the numbers of the leading global.
func (s *releaseService) show(ctx context.Context, name string, k *room.Release) api.Release {
	a := api.Release{
		Id: int64(k.ID), People: k.N, State: api.Open, At: time.UnixMilli(k.At).UTC(), By: k.By,
		Reason: k.Reason,
	}
	n, ok := s.numbers(ctx, room.IDOf(name))
	switch {
	case k.Lender == nil:
		a.State = api.Waiting
		none := 0
		a.LetIn = &none
	case ok && n.Leader != *k.Lender:
		a.State = api.Interrupted
	case ok && n.Release == k.ID:
		if a.LetIn = &n.LetIn; n.LetIn >= k.N {
			a.State = api.Done
		}
	}
	return a
}
