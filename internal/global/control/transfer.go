package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/page/checkpage"
)

// maxImport bounds the body of an import: the largest rooms file, escaped, and some pages.
const maxImport = 32 << 20

// importPath is the one path whose body may be so large.
const importPath = Prefix + "/vestibule/import"

// transferService writes rooms as a rooms file, and takes them from one.
type transferService struct {
	*catalog
	draws *drawRules
}

// ExportRooms implements [api.StrictServerInterface].
func (s *transferService) ExportRooms(ctx context.Context, _ api.ExportRoomsRequestObject) (api.ExportRoomsResponseObject, error) {
	state, err := s.store.Read(ctx)
	if err != nil {
		return nil, err
	}
	doc, pages := state.Document(), map[string]string{}
	for i := range doc.Rooms {
		r := &doc.Rooms[i]
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
	return api.ExportRooms200JSONResponse{ExportAnswerJSONResponse: api.ExportAnswerJSONResponse{
		Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: api.RoomsFile{RoomsYaml: string(data), Pages: pages},
	}}, nil
}

// dryRunError ends a change that is not to be made.
type dryRunError struct{ changes []api.ImportedChange }

func (e *dryRunError) Error() string { return "dry run" }

// pagesOf names the pages of rooms, which a file calls by their files' names, by what is in them, and returns
// those files. A page that is not given or that visitors could not be shown is a fault.
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

// ImportRooms implements [api.StrictServerInterface].
func (s *transferService) ImportRooms(ctx context.Context, q api.ImportRoomsRequestObject) (api.ImportRoomsResponseObject, error) {
	var f faults
	m := f.object("", *q.Body)
	text, _ := f.text("/rooms_yaml", m["rooms_yaml"])
	dry, _ := f.flag("/dry_run", m["dry_run"])
	take, _ := f.flag("/take_over", m["take_over"])
	var pages map[string]string
	if v := m["pages"]; !null(v) && json.Unmarshal(v, &pages) != nil {
		f.add("/pages", "pages must be an object of texts")
	}
	if len(f) > 0 {
		return nil, invalid(f)
	}
	doc, err := roomfile.Parse([]byte(text))
	if list, ok := asFaults(err); ok {
		for _, r := range list {
			f.add("/rooms_yaml", "%s", r.Error())
		}
	} else if err != nil {
		return nil, err
	}
	files := pagesOf(doc.Rooms, pages, &f)
	if len(f) > 0 {
		return nil, invalid(f)
	}
	var changes []api.ImportedChange
	_, err = s.change(ctx, func(d *roomstore.Draft) error {
		if take {
			d.TakeOver()
		}
		d.Set(doc)
		for name := range files {
			d.AddPage(name, []byte(pages[name]))
		}
		next, err := d.Apply(1, d.Base().Version+1)
		if err != nil {
			return err
		}
		if err := s.importedDraws(doc.Rooms, d.Base(), next); err != nil {
			return err
		}
		if changes = imported(d.Base(), next); dry {
			return &dryRunError{changes}
		}
		return nil
	})
	if _, ok := errors.AsType[*dryRunError](err); ok {
		err = nil
	}
	if list, ok := asFaults(err); ok {
		for _, r := range list {
			f.add("/rooms_yaml", "%s", r.Error())
		}
		err = invalid(f)
	}
	a := api.ImportAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: api.Imported{Applied: !dry, Changes: changes}}
	return api.ImportRooms200JSONResponse{ImportAnswerJSONResponse: a}, err
}

// imported tells what an import changes.
func imported(base, next *roomstore.State) []api.ImportedChange {
	out := []api.ImportedChange{}
	kind := func(before, after bool) api.ImportedChangeChange {
		switch {
		case !before:
			return api.Made
		case !after:
			return api.Deleted
		}
		return api.Changed
	}
	for _, c := range roomstore.Changes(base, next) {
		out = append(out, api.ImportedChange{
			Kind: api.ImportedChangeKindRoom, Name: c.Name, Change: kind(c.Before != nil, c.After != nil), Settings: differ(settingsOf(c.Before), settingsOf(c.After)),
		})
	}
	before, after := sites(base), sites(next)
	for _, name := range slices.Sorted(maps.Keys(union(before, after))) {
		if before[name] != after[name] {
			out = append(out, api.ImportedChange{Kind: api.ImportedChangeKindHost, Name: name, Change: kind(before[name] != "", after[name] != ""), Settings: []string{}})
		}
	}
	return out
}

// importedDraws returns the draws of rooms of a file that cannot be made.
func (s *transferService) importedDraws(rooms []room.Settings, base, next *roomstore.State) error {
	var faults room.Faults
	at := make(map[string]int, len(rooms)) // by name: there may be 10,000 of them
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

// settingsOf returns the settings of a room, nil for none.
func settingsOf(r *roomstore.Room) *room.Settings {
	if r == nil {
		return nil
	}
	return &r.Settings
}

func sites(s *roomstore.State) map[string]string {
	out := map[string]string{}
	for _, h := range s.Hosts {
		out[h.Name] = h.Origin
	}
	return out
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
