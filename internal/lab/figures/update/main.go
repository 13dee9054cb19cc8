// Command update takes measured figures over into docs/figures.json and renders docs/FIGURES.md. Its arguments are files
// that commands with the flag -json wrote; without any it only renders.
package main

import (
	"fmt"
	"os"

	"vestibule/internal/lab/figures"
)

const (
	data     = "docs/figures.json"
	document = "docs/FIGURES.md"
)

func main() {
	if err := update(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "update:", err)
		os.Exit(1)
	}
}

func update(files []string) error {
	old, err := os.ReadFile(data)
	if err != nil {
		return err
	}
	d, err := figures.Decode(old)
	if err != nil {
		return fmt.Errorf("%s: %w", data, err)
	}
	for _, file := range files {
		measured, err := figures.Read(file)
		if err != nil {
			return err
		}
		for _, key := range d.Take(measured) {
			fmt.Fprintf(os.Stderr, "no row of %s is from %q\n", data, key)
		}
	}
	out, err := d.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(data, out, 0o644); err != nil { //nolint:gosec // a document
		return err
	}
	return os.WriteFile(document, []byte(d.Render()), 0o644) //nolint:gosec // a document
}
