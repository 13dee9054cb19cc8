package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/page/checkpage"
)

// applyService exports rooms as a rooms file, and applies one.
type applyService struct {
	*catalog
	draws *drawRules
}

// export returns all rooms as a rooms file, with its pages.
func (s *applyService) export(ctx context.Context, _ *request) (any, error) {
	state, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	doc, pages, who := state.Document(), map[string]string{}, principal(ctx)
	for i := range doc.Rooms {
		r := &doc.Rooms[i]
		r.Rules = slices.Clone(r.Rules)
		for k := range r.Rules {
			r.Rules[k].Expression = who.expression(r.Rules[k].Expression)
		}
		r.Pages(func(name *string) {
			if *name == "" || err != nil {
				return
			}
			var page []byte
			if page, err = s.page(ctx, *name); err == nil && page == nil {
				err = fmt.Errorf("a page of room %s is not in the store", r.Name)
			}
			*name = "page-" + *name + ".html"
			pages[*name] = string(page)
		})
		if err != nil {
			return nil, err
		}
	}
	data, err := roomfile.Format(doc)
	if err != nil {
		return nil, refusef(http.StatusBadRequest, codeInvalid, "%v: invalid data", err)
	}
	return api.RoomsFile{RoomsYaml: string(data), Pages: pages}, nil
}

// dryRunError aborts a change that is only previewed.
type dryRunError struct{ changes []api.AppliedChange }

func (e *dryRunError) Error() string { return "dry run" }

// pagesOf replaces the page file names in rooms by the hashes of the pages, and returns those files. A page that is
// missing or invalid is a fault.
func pagesOf(rooms []room.Settings, pages map[string]string, f *faults) map[string]bool {
	files := map[string]bool{}
	for i := range rooms {
		r := &rooms[i]
		r.Pages(func(name *string) {
			if *name == "" {
				return
			}
			page, given := pages[*name]
			if !files[*name] {
				files[*name] = true
				if !given {
					f.add("/pages", "rooms[%d] %q: waiting_page: the content of %q is needed", i, r.Name, short(*name))
				} else if _, err := checkpage.Check([]byte(page)); err != nil {
					f.add("/pages", "%s: %v", short(*name), err)
				}
			}
			*name = roomdoc.Hash([]byte(page))
		})
	}
	return files
}

// apply makes, replaces and deletes rooms and hosts as a rooms file says.
func (s *applyService) apply(ctx context.Context, q *request) (any, error) {
	var f faults
	m := f.object("", q.body, "rooms_yaml", "pages", "prune", "dry_run")
	text, _ := f.longText("/rooms_yaml", m["rooms_yaml"], roomfile.MaxBytes)
	dry, _ := f.flag("/dry_run", m["dry_run"])
	prune, _ := f.flag("/prune", m["prune"])
	pages := map[string]string{}
	if v := m["pages"]; !null(v) {
		for name, content := range f.members("/pages", v) {
			pages[name], _ = f.longText("/pages/"+name, content, room.MaxPageBytes)
		}
	}
	if f.n > 0 {
		return nil, f.err()
	}
	doc, err := roomfile.Parse([]byte(text))
	if err != nil && !f.inFile(err) {
		return nil, err
	}
	files := pagesOf(doc.Rooms, pages, &f)
	if f.n > 0 {
		return nil, f.err()
	}
	var changes []api.AppliedChange
	var unserved []string
	base := uint64(0)
	_, err = s.store.Change(ctx, func(d *roomstore.Draft) error {
		if base = d.Base().Version; prune {
			d.Set(doc)
		} else {
			d.Merge(doc)
		}
		for name := range files {
			d.AddPage(name, []byte(pages[name]))
		}
		if err := q.match(base, "the state of all rooms"); err != nil {
			return err
		}
		next, err := d.Apply(1, base+1)
		if err != nil {
			return err
		}
		if err := s.appliedDraws(doc.Rooms, d.Base(), next); err != nil {
			return err
		}
		unserved = roomstore.Unserved(d.Base(), next)
		if changes = applied(d.Base(), next); dry {
			return &dryRunError{changes}
		}
		return nil
	})
	if _, ok := errors.AsType[*dryRunError](err); ok {
		err = nil
	}
	if f.inFile(err) {
		err = f.err()
	}
	out := api.Applied{Applied: !dry, Changes: changes}
	if len(unserved) > 0 {
		out.Unserved = &unserved
	}
	return tagged{out, base, nil}, err
}

// inFile adds the faults of a rooms file. It reports whether err is a list of them.
func (f *faults) inFile(err error) bool {
	list, ok := asFaults(err)
	for _, r := range list {
		if r.More > 0 {
			f.n += r.More
		} else if !f.full() {
			f.add("/rooms_yaml", "%s", r.Error())
		}
	}
	return ok
}

// applied returns the changes that a file makes.
func applied(base, next *roomstore.State) []api.AppliedChange {
	out := []api.AppliedChange{}
	for _, c := range roomstore.Changes(base, next) {
		a := appliedChange(api.AppliedChangeKindRoom, c.Name, c.Before != nil, c.After != nil)
		a.Settings = settingsOfChange(settingsOf(c.Before), settingsOf(c.After))
		out = append(out, a)
	}
	before, after := base.Sites(), next.Sites()
	for _, name := range roomstore.HostChanges(before, after) {
		out = append(out, appliedChange(api.AppliedChangeKindHost, name, before[name] != "", after[name] != ""))
	}
	return out
}

// appliedChange returns the change of an object that existed before it or not, and after it or not.
func appliedChange(kind api.AppliedChangeKind, name string, before, after bool) api.AppliedChange {
	a := api.AppliedChange{Kind: kind, Name: name, Change: api.Changed, Settings: []api.AppliedSetting{}}
	switch {
	case !before:
		a.Change = api.Made
	case !after:
		a.Change = api.Deleted
	}
	return a
}

// settingsOfChange returns the settings that differ between two rooms: none if either is missing. Those of events and
// rules are listed one by one.
func settingsOfChange(before, after *room.Settings) []api.AppliedSetting {
	out := []api.AppliedSetting{}
	for _, key := range differ(before, after) {
		was, is := (*plain(before))[key], (*plain(after))[key]
		switch {
		case reflect.DeepEqual(was, is): // differs only in when an event was made
		case key == "events":
			out = append(out, partsOfChange("events", "name", was, is)...)
		case key == "rules":
			out = append(out, partsOfChange("rules", "id", was, is)...)
		default:
			out = append(out, api.AppliedSetting{Key: key, Before: was, After: is})
		}
	}
	return out
}

// partsOfChange returns the fields that differ between two lists of objects, which name tells apart.
func partsOfChange(list, name string, before, after any) (out []api.AppliedSetting) {
	was, is := byName(name, before), byName(name, after)
	for _, id := range union(was, is) {
		at := fmt.Sprintf("%s[%s]", list, id)
		if was[id] == nil || is[id] == nil {
			s := api.AppliedSetting{Key: at}
			if was[id] != nil {
				s.Before = was[id]
			} else {
				s.After = is[id]
			}
			out = append(out, s)
			continue
		}
		for _, key := range union(was[id], is[id]) {
			s := api.AppliedSetting{Key: at + "." + key, Before: was[id][key], After: is[id][key]}
			if !reflect.DeepEqual(s.Before, s.After) {
				out = append(out, s)
			}
		}
	}
	if out == nil { // only their order
		out = append(out, api.AppliedSetting{Key: list, Before: before, After: after})
	}
	return out
}

// byName returns the objects of a list by one of their fields.
func byName(field string, list any) map[string]map[string]any {
	out := map[string]map[string]any{}
	all, _ := list.([]any)
	for _, v := range all {
		if m, ok := v.(map[string]any); ok {
			name := fmt.Sprint(m[field])
			if out[name] != nil { // events may share a name
				name = fmt.Sprint(m["id"])
			}
			out[name] = m
		}
	}
	return out
}

// union returns the keys of both maps, in order.
func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// appliedDraws returns the invalid draws in the rooms of a file.
func (s *applyService) appliedDraws(rooms []room.Settings, base, next *roomstore.State) error {
	var faults room.Faults
	at := make(map[string]int, len(rooms)) // by name: a file may have 10,000 rooms
	for i := range rooms {
		at[rooms[i].Name] = i
	}
	for _, c := range roomstore.Changes(base, next) {
		if i, ok := at[c.Name]; ok && c.After != nil {
			faults = append(faults, s.draws.ofRoom(fmt.Sprintf("rooms[%d]", i), &c.After.Settings, settingsOf(c.Before))...)
		}
	}
	return faults.Err()
}
