package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"vestibule/internal/core/room"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// revisionService serves earlier settings of rooms, and restores them.
type revisionService struct {
	log   *auditService
	rooms *roomService
	draws *drawRules
}

// room returns the ID of the room of a request. A room may be named by its ID or its name, also after its deletion.
func (s *revisionService) room(ctx context.Context, q *request) (string, error) {
	text := q.room()
	if len(text) == len(Zone) && strings.Trim(text, "0123456789abcdef") == "" {
		return text, nil
	}
	state, err := s.rooms.current(ctx)
	if err != nil {
		return "", err
	}
	if r := state.Room(text); r != nil {
		return room.PublicID(r.TicketName()), nil
	}
	first, last, err := s.log.journal.Bounds(ctx)
	if err != nil {
		return "", err
	}
	found, err := s.log.search(ctx, auditFilter{room: text}, first, last+1, 1)
	if err != nil {
		return "", err
	}
	for _, stored := range found {
		var e audit.Entry
		if err := json.Unmarshal(stored.Data, &e); err != nil {
			return "", err
		}
		for _, r := range e.Rooms {
			if r.Name == text {
				return r.ID, nil
			}
		}
	}
	return "", refusef(http.StatusNotFound, codeNotFound, "no room %q, and no entry of the audit log names one",
		short(text))
}

// revision is an entry about one room.
type revision struct {
	audit.Entry
	room audit.Room
}

// revisions returns the ID of the room of a request and the entries about it, the oldest first.
func (s *revisionService) revisions(ctx context.Context, q *request) (id string, out []revision, err error) {
	if id, err = s.room(ctx, q); err != nil {
		return "", nil, err
	}
	for _, subject := range []string{audit.RoomSubject(id), audit.RoomsSubject} {
		for from := uint64(1); ; {
			some, err := s.log.journal.Read(ctx, from, 1000, subject)
			if err != nil {
				return "", nil, err
			}
			if len(some) == 0 {
				break
			}
			for _, stored := range some {
				var e audit.Entry
				if err := json.Unmarshal(stored.Data, &e); err != nil {
					return "", nil, fmt.Errorf("audit: entry %d: %w", stored.Sequence, err)
				}
				for _, r := range e.Rooms {
					if r.ID == id {
						out = append(out, revision{e, r})
					}
				}
			}
			from = some[len(some)-1].Sequence + 1
		}
	}
	if len(out) == 0 {
		return "", nil, errNotFound
	}
	slices.SortStableFunc(out, func(a, b revision) int { return cmp.Compare(a.Number, b.Number) })
	return id, out, nil
}

func (s *revisionService) list(ctx context.Context, q *request) (any, error) {
	_, all, err := s.revisions(ctx, q)
	if err != nil {
		return nil, err
	}
	slices.Reverse(all)
	return pageOf(q, all, (*revision).show)
}

func (r *revision) show() (shown api.RoomRevision, err error) {
	after, err := alone(r.room.After)
	if err != nil {
		return shown, err
	}
	before, err := alone(r.room.Before)
	if err != nil {
		return shown, err
	}
	shown = api.RoomRevision{
		At: r.At, Late: r.Late, Name: r.room.Name, Number: int64(r.Number),
		Revision: int64(r.Version), Changed: differ(before, after), Room: plain(after),
	}
	shown.By.Id, shown.By.Name, shown.By.Role = r.By.ID, r.By.Name, r.By.Role
	shown.By.From, shown.By.Operation = r.By.From, r.By.Operation
	return shown, nil
}

func (s *revisionService) restore(ctx context.Context, q *request) (any, error) {
	id, all, err := s.revisions(ctx, q)
	if err == nil {
		err = q.empty()
	}
	if err != nil {
		return nil, err
	}
	version, err := strconv.ParseUint(q.PathValue("revision"), 10, 64)
	at := slices.IndexFunc(all, func(r revision) bool { return r.Version == version })
	if err != nil || at < 0 {
		return nil, errNotFound
	}
	settings, err := alone(all[at].room.After) // nil if the room was deleted
	if err != nil {
		return nil, err
	}
	if settings == nil {
		return nil, refusef(http.StatusBadRequest, codeInvalid,
			"revision %d is that the room was deleted: choose one before it: invalid data", version)
	}
	var pages [][]byte
	for name := range settings.EachPage {
		page, err := s.rooms.page(ctx, name)
		if err != nil {
			return nil, err
		}
		if page == nil {
			return nil, refusef(http.StatusBadRequest, codeInvalid,
				"a waiting page of revision %d is not kept any more: invalid data", version)
		}
		pages = append(pages, page)
	}
	name := settings.Name
	state, err := s.rooms.store.Change(ctx, func(d *roomstore.Draft) error {
		for _, page := range pages {
			d.AddPage("custom_page_html", page)
		}
		r := s.rooms.find(d.Base(), id)
		if other := d.Room(name); other != nil && other != r {
			return refusef(http.StatusBadRequest, codeInvalid, "%s is the name of another room now: invalid data", name)
		}
		if err := s.draws.ofRoom("", settings, settingsOf(r)).Err(); err != nil {
			return err
		}
		if r == nil {
			d.Put(*settings)
			return nil
		}
		if err := q.match(r.Revision, "room "+r.Name); err != nil {
			return err
		}
		return d.Replace(r.Name, *settings)
	})
	return s.rooms.begun(ctx, state, name, err)
}
