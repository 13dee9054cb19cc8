package control

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// auditService serves the audit stream.
type auditService struct {
	rooms   *catalog
	journal *audit.Journal
}

// readEntries returns up to n entries, starting at sequence from.
func (s *auditService) readEntries(ctx context.Context, from uint64, n int) (out []wire.AuditEntry, err error) {
	for n > 0 {
		some, err := s.journal.Read(ctx, from, n, "")
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			break
		}
		out, n, from = append(out, some...), n-len(some), some[len(some)-1].Sequence+1
	}
	return out, nil
}

// list shows the newest entries first, or with from in the query the oldest of those from that number on. With a
// filter it shows the newest that match.
func (s *auditService) list(ctx context.Context, q *request) (any, error) {
	first, last, err := s.journal.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	from, to, info, err := q.page(int(last + 1 - first))
	if err != nil {
		return nil, err
	}
	state, err := s.rooms.current(ctx)
	if err != nil {
		return nil, err
	}
	var f faults
	wanted, filtered := readAuditFilter(&f, q, state)
	start := q.number(&f, "from", 0, 0, math.MaxInt)
	before := q.number(&f, "before", math.MaxInt, 1, math.MaxInt)
	if f.n > 0 {
		return nil, f.err()
	}
	var got []wire.AuditEntry
	lowest, n := last+1-uint64(to), to-from // the newest are on the first page
	switch forward := q.URL.Query().Has("from"); {
	case filtered:
		got, err = s.search(ctx, wanted, first, min(last+1, uint64(before)), info.PerPage)
		info.Page, info.TotalCount, info.TotalPages = 1, len(got), 1
	case forward:
		got, err = s.readEntries(ctx, max(first, uint64(max(1, start))), info.PerPage)
	default:
		got, err = s.readEntries(ctx, lowest, n)
		slices.Reverse(got)
	}
	if err != nil {
		return nil, err
	}
	info.Count = len(got)
	out := []api.AuditEntry{}
	for _, e := range got {
		shown, err := s.show(state, e)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	return listPage{out, info}, nil
}

// auditFilter selects entries; the zero value of a field selects all.
type auditFilter struct {
	room, id string // name and ID of a room
	by       string // name or ID of an author
	since    time.Time
	until    time.Time // zero for none
}

// readAuditFilter reads the filter of a query, and reports whether there is one.
func readAuditFilter(f *faults, q *request, state *roomstore.State) (w auditFilter, filtered bool) {
	query := q.URL.Query()
	w.room, w.by = query.Get("room"), query.Get("by")
	switch r := state.Room(w.room); {
	case r != nil:
		w.id = room.PublicID(r.TicketName())
	case len(w.room) == len(Zone): // an ID
		w.id = w.room
	case w.room != "": // a deleted room, if it was never renamed
		w.id = room.PublicID(w.room)
	}
	if text := query.Get("since"); text != "" {
		var err error
		if w.since, err = time.Parse(time.RFC3339, text); err != nil {
			f.add("/since", "since must be a time such as 2026-11-22T20:15:00Z, got %q", short(text))
		}
	}
	return w, w != auditFilter{} || query.Has("before")
}

// of reports whether the entry matches the filter.
func (w *auditFilter) of(e *audit.Entry) bool {
	if w.by != "" && w.by != e.By.Name && w.by != e.By.ID || e.At.Before(w.since) ||
		!w.until.IsZero() && !e.At.Before(w.until) {
		return false
	}
	return w.room == "" || (w.id != "" && strings.HasPrefix(e.Target, controlsTarget+w.id)) ||
		slices.ContainsFunc(e.Rooms, func(r audit.Room) bool { return r.Name == w.room || r.ID == w.id })
}

// firstBlock and auditBlock are the numbers of entries that a search reads at once, the newest and later ones.
const firstBlock, auditBlock = 32, 500

// search returns up to n matching entries below the sequence before, the newest first.
func (s *auditService) search(
	ctx context.Context, w auditFilter, first, before uint64, n int,
) (out []wire.AuditEntry, err error) {
	for size := uint64(firstBlock); before > first && len(out) < n; size = min(2*size, auditBlock) {
		from := max(first, before-min(before, size))
		block, err := s.readEntries(ctx, from, int(before-from))
		if err != nil {
			return nil, err
		}
		old := false
		for _, stored := range slices.Backward(block) {
			var e audit.Entry
			if json.Unmarshal(stored.Data, &e) != nil {
				continue // audit verify names it
			}
			if w.of(&e) && len(out) < n {
				out = append(out, stored)
			}
			old = old || !e.Late && e.At.Before(w.since.Add(-time.Hour)) // clocks of the globals differ
		}
		if before = from; old {
			break
		}
	}
	return out, nil
}

// show returns a stored entry with its changes. One that cannot be read has none: it is shown for verification.
func (s *auditService) show(state *roomstore.State, stored wire.AuditEntry) (api.AuditEntry, error) {
	out := api.AuditEntry{
		Sequence: int64(stored.Sequence), Hash: audit.Hash(stored.Data), Entry: stored.Data, Changes: []api.AppliedChange{},
	}
	var e audit.Entry
	if json.Unmarshal(stored.Data, &e) != nil {
		return out, nil
	}
	out.Number, out.At, out.By, out.Reason = int64(e.Number), e.At, e.By.Name, e.By.Reason
	for _, r := range e.Rooms {
		before, err := alone(r.Before)
		if err != nil {
			return out, err
		}
		after, err := alone(r.After)
		if err != nil {
			return out, err
		}
		change := appliedChange(api.AppliedChangeKindRoom, r.Name, before != nil, after != nil)
		change.Settings = settingsOfChange(before, after)
		out.Changes = append(out.Changes, change)
	}
	for _, h := range e.Hosts {
		change := appliedChange(api.AppliedChangeKindHost, h.Name, h.Before != "", h.After != "")
		change.Settings = []api.AppliedSetting{{Key: "origin", Before: h.Before, After: h.After}}
		out.Changes = append(out.Changes, change)
	}
	if e.Target != "" && e.Failed == "" {
		before, after := flat(e.Before), flat(e.After)
		kind, name := api.AppliedChangeKindOther, e.Target
		if id, ok := strings.CutPrefix(e.Target, controlsTarget); ok {
			kind = api.AppliedChangeKindControls
			if id, name, _ = strings.Cut(id, " "); name == "" { // an entry of an older build
				name = id
			}
			if r := s.rooms.find(state, id); r != nil {
				name = r.Name
			}
			before, after = nonNil(before), nonNil(after) // a room without controls has empty ones
		} else if id, ok := strings.CutPrefix(e.Target, tokenKeys); ok {
			kind, name = api.AppliedChangeKindToken, id
		} else if id, ok := strings.CutPrefix(e.Target, webhookTarget); ok {
			kind, name = api.AppliedChangeKindWebhook, id
		} else if dc, ok := strings.CutPrefix(e.Target, centreTarget); ok {
			kind, name = api.AppliedChangeKindDataCenter, dc
		}
		change := appliedChange(kind, name, before != nil, after != nil)
		change.Settings, out.Reason = flatChanges(before, after), cmp.Or(out.Reason, reasonIn(before, after))
		out.Changes = append(out.Changes, change)
	}
	out.Text = sentence(&e, out.Changes)
	return out, nil
}

// flat returns the fields of a JSON object, those of nested objects with dots, and true at the key of each; nil for
// none.
func flat(data json.RawMessage) map[string]any {
	var m map[string]any
	if json.Unmarshal(data, &m) != nil || m == nil {
		return nil
	}
	out := map[string]any{}
	flatInto(out, "", m)
	return out
}

func flatInto(out map[string]any, prefix string, m map[string]any) {
	for key, v := range m {
		if nested, ok := v.(map[string]any); ok {
			out[prefix+key] = true
			flatInto(out, prefix+key+".", nested)
			continue
		}
		if ms, ok := v.(float64); ok && prefix != "" && key == "until" {
			v = moment(int64(ms))
		}
		out[prefix+key] = v
	}
}

func nonNil(m map[string]any) map[string]any {
	if m == nil {
		m = map[string]any{}
	}
	return m
}

// unlisted are the fields that every control has, and those of a release that say nothing to people.
var unlisted = []string{"since", "by", "reason", "keys", "key", "at", "lender", "term", "nonce"}

// flatChanges returns the fields that differ, without unlisted ones.
func flatChanges(before, after map[string]any) []api.AppliedSetting {
	out := []api.AppliedSetting{}
	for _, key := range union(before, after) {
		inner := strings.LastIndexByte(key, '.')
		if inner >= 0 && slices.Contains(unlisted, key[inner+1:]) || reflect.DeepEqual(before[key], after[key]) {
			continue
		}
		out = append(out, api.AppliedSetting{Key: key, Before: before[key], After: after[key]})
	}
	return out
}

// reasonIn returns the reason of a control or a release that is new.
func reasonIn(before, after map[string]any) string {
	for key, v := range after {
		if strings.HasSuffix(key, ".reason") && v != before[key] {
			text, _ := v.(string)
			return text
		}
	}
	return ""
}
