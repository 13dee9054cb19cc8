package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// ruleService serves the rules of rooms.
type ruleService struct {
	*catalog
	clock
}

// rulesOf returns the result of every operation on rules: the whole list.
func rulesOf(ctx context.Context, r *roomstore.Room) tagged {
	out := []api.Rule{}
	for i := range r.Rules {
		rule := &r.Rules[i]
		updated := rule.Updated
		if updated == 0 { // of a rooms file
			updated = r.Changed
		}
		out = append(out, api.Rule{
			Id: rule.ID, Version: strconv.Itoa(rule.Version), Action: room.ActionBypass,
			Expression: principal(ctx).expression(rule.Expression), Description: rule.Description, Enabled: !rule.Disabled,
			LastUpdated: time.UnixMilli(updated).UTC(),
		})
	}
	n := len(out)
	info := api.ResultInfo{Page: 1, PerPage: room.MaxRules, Count: n, TotalCount: n, TotalPages: min(n, 1)}
	return tagged{listPage{out, info}, r.Revision, nil}
}

func (s *ruleService) list(ctx context.Context, q *request) (any, error) {
	r, err := s.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	return rulesOf(ctx, r), nil
}

func (s *ruleService) create(ctx context.Context, q *request) (any, error) {
	return s.change(ctx, q, func(e *ruleEdit) {
		e.rules = append(e.rules, e.read("", e.faults.object("", q.body, ruleFields...), room.Rule{ID: newRuleID()}, true))
		e.at = func(i int) string { return "" }
	})
}

func (s *ruleService) replace(ctx context.Context, q *request) (any, error) {
	return s.change(ctx, q, func(e *ruleEdit) { e.replace(q.body) })
}

func (s *ruleService) patch(ctx context.Context, q *request) (any, error) {
	return s.change(ctx, q, func(e *ruleEdit) {
		i := e.find(q.PathValue("rule_id"))
		if i < 0 {
			e.err = errNotFound
			return
		}
		body := e.faults.object("", q.body, ruleFields...)
		e.rules[i] = e.read("", body, e.rules[i], false)
		e.move(i, body["position"])
		e.at = func(int) string { return "" }
	})
}

func (s *ruleService) delete(ctx context.Context, q *request) (any, error) {
	return s.change(ctx, q, func(e *ruleEdit) {
		if i := e.find(q.PathValue("rule_id")); i >= 0 {
			e.rules = slices.Delete(e.rules, i, i+1)
		} else {
			e.err = errNotFound
		}
	})
}

// ruleFields are the fields of a rule. The last three are read-only and ignored: clients of the hosted product send the
// rules that they have read.
var ruleFields = []string{"expression", "description", "enabled", "position", "action", "id", "version", "last_updated"}

// ruleEdit is a change of the rules of one room.
type ruleEdit struct {
	rules  []room.Rule
	now    int64 // Unix milliseconds
	faults faults
	bad    map[string]bool    // pointers that have a fault already
	at     func(i int) string // pointer of a rule in the body
	err    error
}

// change changes the rules of a room. Faults of rules outside of the body name their index.
func (s *ruleService) change(ctx context.Context, q *request, edit func(*ruleEdit)) (any, error) {
	name := ""
	state, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		r, err := s.draft(d, q)
		if err != nil {
			return err
		}
		name = r.Name
		e := &ruleEdit{
			rules: slices.Clone(r.Rules), now: s.now().UnixMilli(), bad: map[string]bool{},
			at: func(i int) string { return "/" + strconv.Itoa(i) },
		}
		if edit(e); e.err != nil {
			return e.err
		}
		settings := r.Settings
		settings.Rules = e.rules
		for _, f := range settings.Validate() {
			if f.Field == "rules" {
				e.faults.add("", "%s %s", f.Field, f.Rule)
			}
			if i, key, ok := ruleField(f.Field); ok && !e.bad[e.at(i)+"/"+key] {
				e.faults.add(e.at(i)+"/"+key, "%s %s", key, f.Rule)
			}
		}
		if e.faults.n > 0 {
			return e.faults.err()
		}
		return d.Replace(r.Name, settings)
	})
	r, err := after(state, name, err)
	if err != nil {
		return nil, err
	}
	return rulesOf(ctx, r), nil
}

// ruleField splits a field such as rules[3].expression.
func ruleField(field string) (i int, key string, ok bool) {
	rest, ok := strings.CutPrefix(field, "rules[")
	if !ok {
		return 0, "", false
	}
	number, key, ok := strings.Cut(rest, "].")
	i, err := strconv.Atoi(number)
	return i, key, ok && err == nil
}

func newRuleID() string {
	var b [16]byte
	rand.Read(b[:]) // documented never to fail
	return hex.EncodeToString(b[:])
}

func (e *ruleEdit) find(id string) int {
	return slices.IndexFunc(e.rules, func(r room.Rule) bool { return r.ID == id })
}

// read reads a rule over an existing one, from an object, nil for none. With whole set, missing keys take their
// defaults.
func (e *ruleEdit) read(pointer string, m map[string]json.RawMessage, over room.Rule, whole bool) room.Rule {
	r := over
	if whole {
		r.Expression, r.Description, r.Disabled = "", "", false
	}
	note := func(key string, ok bool) { e.bad[pointer+"/"+key] = e.bad[pointer+"/"+key] || !ok }
	if m == nil {
		note("expression", false)
		return r
	}
	if _, ok := m["action"]; ok || whole {
		action, ok := e.faults.text(pointer+"/action", m["action"])
		if ok && !strings.EqualFold(action, room.ActionBypass) {
			e.faults.add(pointer+"/action", "action must be %s, got %q", room.ActionBypass, short(action))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		ok, enabled := true, true
		switch key {
		case "expression":
			r.Expression, ok = e.faults.text(pointer+"/expression", m[key])
		case "description":
			r.Description, ok = e.faults.text(pointer+"/description", m[key])
		case "enabled":
			if !null(m[key]) {
				enabled, ok = e.faults.flag(pointer+"/enabled", m[key])
			}
			r.Disabled = !enabled
		}
		note(key, ok)
	}
	if r != over {
		r.Version++
		r.Updated = e.now
	}
	return r
}

// replace replaces the rules by a list.
func (e *ruleEdit) replace(data json.RawMessage) {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil || null(data) {
		e.faults.add("", "the body must be a list of rules")
		return
	}
	old := e.rules
	e.rules = []room.Rule{}
	take := func(same func(room.Rule) bool) (room.Rule, bool) {
		i := slices.IndexFunc(old, same)
		if i < 0 {
			return room.Rule{}, false
		}
		r := old[i]
		old = slices.Delete(slices.Clone(old), i, i+1)
		return r, true
	}
	for i, data := range list[:min(len(list), room.MaxRules+1)] {
		var given struct{ ID, Expression string }
		_ = json.Unmarshal(data, &given) // faults are reported below
		over, known := take(func(r room.Rule) bool { return given.ID != "" && r.ID == given.ID })
		if !known {
			over, known = take(func(r room.Rule) bool { return r.Expression == given.Expression })
		}
		if !known {
			over.ID = newRuleID()
		}
		at := fmt.Sprintf("/%d", i)
		e.rules = append(e.rules, e.read(at, e.faults.object(at, data, ruleFields...), over, true))
	}
}

// move puts a rule at the requested index.
func (e *ruleEdit) move(i int, data json.RawMessage) {
	if null(data) {
		return
	}
	m := e.faults.object("/position", data, "index", "before", "after")
	if m == nil {
		return
	}
	if len(m) != 1 {
		e.faults.add("/position", "position must be one of index, before and after")
		return
	}
	rule := e.rules[i]
	rest := slices.Delete(slices.Clone(e.rules), i, i+1)
	at := -1
	for key, value := range m {
		pointer := "/position/" + key
		switch key {
		case "index":
			n, ok := e.faults.whole(pointer, value)
			if ok && (n < 1 || n > len(e.rules)) {
				e.faults.add(pointer, "position.index must be 1 to %d, got %d", len(e.rules), n)
				ok = false
			}
			if ok {
				at = n - 1
			}
		case "before", "after":
			id, ok := e.faults.text(pointer, value)
			switch {
			case !ok:
			case id == "" && key == "before":
				at = 0
			case id == "":
				at = len(rest)
			default:
				j := slices.IndexFunc(rest, func(r room.Rule) bool { return r.ID == id })
				if j < 0 {
					e.faults.add(pointer, "position.%s: no other rule has the id %q", key, short(id))
					break
				}
				if at = j; key == "after" {
					at++
				}
			}
		}
	}
	if at >= 0 {
		e.rules = slices.Insert(rest, at, rule)
	}
}
