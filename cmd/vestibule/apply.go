package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

// exportRooms prints rooms.yaml, or writes it to a file, with its pages beside it. It overwrites a file only if the
// content is the same.
func exportRooms(c *client, file string) error {
	got, err := call[api.RoomsFile](c, http.MethodGet, ofOurs("export"), nil)
	if err != nil {
		return err
	}
	if c.output == "json" {
		return c.showJSON(got)
	}
	if file == "" {
		if len(got.Pages) > 0 {
			return fmt.Errorf("the rooms have %d waiting pages: name a file with -f, beside which they are written, or use --output json",
				len(got.Pages))
		}
		_, err := io.WriteString(c.out, got.RoomsYaml)
		return err
	}
	files := map[string]string{file: got.RoomsYaml}
	for name, page := range got.Pages {
		if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
			return fmt.Errorf("the server names a page %q, which is no plain file name", name)
		}
		files[filepath.Join(filepath.Dir(file), name)] = page
	}
	for name, text := range files {
		if have, err := os.ReadFile(name); err == nil && string(have) != text {
			return fmt.Errorf("%s is there already, and is another one", name)
		}
	}
	for name, text := range files {
		if err := node.WriteFile(name, []byte(text)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.out, "%s written, with %d pages\n", file, len(got.Pages))
	return err
}

// applyRooms makes or replaces the rooms of a file; with prune, it asks and deletes all others.
func applyRooms(c *client, file string, dry, prune bool, confirm *confirmation) error {
	ask, err := readApply(file)
	if err != nil {
		return err
	}
	tag := "*"
	apply := func(dry bool) (api.Applied, error) {
		ask["dry_run"], ask["prune"] = dry, prune
		return call[api.Applied](c, http.MethodPost, c.because(ofOurs("apply")), ask, ifMatch(tag))
	}
	if prune && !dry {
		planned, err := apply(true)
		if err != nil {
			return err
		}
		tag = c.tag // that nothing else is deleted than what was shown
		gone := map[api.AppliedChangeKind][]string{}
		for _, x := range planned.Changes {
			if x.Change == api.Deleted {
				gone[x.Kind] = append(gone[x.Kind], x.Name)
			}
		}
		if len(gone) > 0 {
			var unserved []string
			if planned.Unserved != nil {
				unserved = *planned.Unserved
			}
			if err := confirm.deletion(c, gone[api.AppliedChangeKindRoom], gone[api.AppliedChangeKindHost], unserved); err != nil {
				return err
			}
		}
	}
	got, err := apply(dry)
	if err != nil {
		return err
	}
	return c.show(got, func(row func(...any)) {
		for _, x := range got.Changes {
			var settings []string
			for _, s := range x.Settings {
				settings = append(settings, difference(s))
			}
			row(fmt.Sprintf("%s %s", x.Kind, x.Name), x.Change, strings.Join(settings, ", "))
		}
		note := ""
		if !got.Applied {
			note = " (dry run: none applied)"
		}
		row(fmt.Sprintf("changes: %d%s", len(got.Changes), note))
	})
}

// readApply returns the request that applies a rooms file, with its pages.
func readApply(file string) (object, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	doc, err := roomfile.Parse(data)
	if err != nil {
		return nil, err
	}
	pages := map[string]string{}
	var errs []error
	for _, r := range doc.Rooms {
		for name := range r.EachPage {
			page, err := os.ReadFile(filepath.Join(filepath.Dir(file), name))
			if pages[name] = string(page); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return object{"rooms_yaml": string(data), "pages": pages}, errors.Join(errs...)
}

// difference shows the old and the new value of a setting, if both are short.
func difference(s api.AppliedSetting) string {
	before, after := asJSON(s.Before), asJSON(s.After)
	switch {
	case max(len(before), len(after)) <= 60:
	case s.Before == nil:
		return s.Key + " added"
	case s.After == nil:
		return s.Key + " removed"
	default:
		return s.Key
	}
	return fmt.Sprintf("%s: %s -> %s", s.Key, before, after)
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
