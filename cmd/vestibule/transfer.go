package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/global/control/api"
	"vestibule/internal/node"
)

// export writes rooms.yaml, and the pages that it names beside it. Nothing is written over but
// what is there already as it is.
func (c *client) export(file string) error {
	var got api.RoomsFile
	res, err := c.ExportRooms(c.ctx)
	if err := take(res, err, &got); err != nil {
		return err
	}
	if c.output == "json" {
		return c.print(got, nil)
	}
	if file == "-" {
		if len(got.Pages) > 0 {
			return fmt.Errorf("the rooms have %d waiting pages: name a file, beside which they are written, or use --output json", len(got.Pages))
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

// load makes the rooms of the API what a file says.
func (c *client) load(file string, dry, takeOver bool) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	doc, err := roomfile.Parse(data)
	if err != nil {
		return err
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
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	body, err := json.Marshal(map[string]any{"rooms_yaml": string(data), "pages": pages, "dry_run": dry, "take_over": takeOver})
	if err != nil {
		return err
	}
	var got api.Imported
	res, err := c.ImportRooms(c.ctx, body)
	if err := take(res, err, &got); err != nil {
		return err
	}
	return c.print(got, func(w io.Writer) {
		fmt.Fprintln(w, "WHAT\tNAME\tCHANGE\tSETTINGS")
		for _, x := range got.Changes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", x.Kind, x.Name, x.Change, strings.Join(x.Settings, " "))
		}
		if !got.Applied {
			fmt.Fprintln(w, "nothing was changed: this was a dry run")
		}
	})
}
