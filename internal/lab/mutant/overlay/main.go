// Command overlay applies the mutants to copies of the product's files, for builds with the tag mutants: no product
// file names a mutant. The mutants are unified diffs in internal/lab/mutant/patches, one for each product file,
// under the file's path.
//
//	go run ./internal/lab/mutant/overlay -out DIR            write the mutated files and DIR/overlay.json
//	go build -tags mutants -overlay DIR/overlay.json ./...   build with them
//	go run ./internal/lab/mutant/overlay -out DIR -record    recreate the patches from the files in DIR
//
// To add or change a mutant: write the files to a folder, edit the copy there, and record. A patch that no longer
// applies is reported with the lines that it expected.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// patches is the folder of the patches, relative to the top of the repository.
const patches = "internal/lab/mutant/patches"

func main() {
	out := flag.String("out", "", "folder of the mutated files")
	record := flag.Bool("record", false, "make the patches anew from the files in -out")
	flag.Parse()
	err := errors.New("-out must name a folder")
	switch {
	case *out == "":
	case *record:
		err = recordAll(*out)
	default:
		err = writeAll(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

// writeAll applies every patch and writes the mutated files and overlay.json. It reports all patches that do not
// apply.
func writeAll(out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil { // files of removed patches
		return err
	}
	replace := map[string]string{}
	var faults []error
	err = filepath.WalkDir(patches, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		file := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(name), patches+"/"), ".patch")
		mutated, err := patched(name, file)
		if err != nil {
			faults = append(faults, err)
			return nil
		}
		copied := filepath.Join(out, file)
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}
		from, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		replace[from] = copied
		return os.WriteFile(copied, mutated, 0o644)
	})
	if err = errors.Join(append(faults, err)...); err != nil {
		return err
	}
	data, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "overlay.json"), data, 0o644)
}

// patched returns a product file with its mutants.
func patched(patch, file string) ([]byte, error) {
	diff, err := os.ReadFile(patch)
	if err != nil {
		return nil, err
	}
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; move or remove the patch with its file", patch, err)
	}
	mutated, err := apply(string(src), string(diff))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", patch, err)
	}
	return []byte(mutated), nil
}

// recordAll recreates the patches from mutated files.
func recordAll(out string) error {
	if _, err := os.Stat(filepath.Join(out, "overlay.json")); err != nil {
		return fmt.Errorf("%w; write the files first, without -record", err)
	}
	if err := os.RemoveAll(patches); err != nil {
		return err
	}
	return filepath.WalkDir(out, func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		file, err := filepath.Rel(out, name)
		if err != nil {
			return err
		}
		diff, err := record(file, name)
		if err != nil || diff == "" { // "": the mutants were removed
			return err
		}
		patch := filepath.Join(patches, file+".patch")
		if err := os.MkdirAll(filepath.Dir(patch), 0o755); err != nil {
			return err
		}
		return os.WriteFile(patch, []byte(diff), 0o644)
	})
}

// record returns the diff that makes mutated of file, with as much context as apply needs.
func record(file, mutated string) (string, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	want, err := os.ReadFile(mutated)
	if err != nil {
		return "", err
	}
	for context := 1; context <= len(src); context *= 2 {
		// git diff exits with 1 if the files differ.
		diff, err := exec.Command("git", "diff", "--no-index", "--no-color", fmt.Sprintf("-U%d", context), "--", file,
			mutated).Output()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			return "", fmt.Errorf("git diff %s: %w", file, err)
		}
		_, hunks, found := strings.Cut(string(diff), "\n@@")
		if !found {
			return "", nil
		}
		hunks = "@@" + hunks
		if got, err := apply(string(src), hunks); err == nil && got == string(want) {
			return hunks, nil
		}
	}
	return "", fmt.Errorf("%s: no diff of %s applies to it", file, mutated)
}

// apply applies a unified diff to src. It searches each hunk by its text only, after the previous hunk, so that a
// patch survives changes elsewhere in its file.
func apply(src, diff string) (string, error) {
	var out strings.Builder
	rest := src
	for i, hunk := range strings.Split("\n"+diff, "\n@@")[1:] {
		_, body, _ := strings.Cut(hunk, "\n")
		if !strings.HasSuffix(body, "\n") { // Split removed the newline before the next hunk
			body += "\n"
		}
		var before, after strings.Builder
		for line := range strings.Lines(body) {
			switch {
			case strings.HasPrefix(line, "-"):
				before.WriteString(line[1:])
			case strings.HasPrefix(line, "+"):
				after.WriteString(line[1:])
			case line == "\n" || strings.HasPrefix(line, " "):
				line = strings.TrimPrefix(line, " ")
				before.WriteString(line)
				after.WriteString(line)
			default:
				return "", fmt.Errorf("hunk %d: unexpected line %q", i+1, line)
			}
		}
		want, put := before.String(), after.String()
		at := strings.Index("\n"+rest, "\n"+want)
		if at < 0 {
			return "", fmt.Errorf("hunk %d does not apply; the file no longer has these lines:\n%s", i+1, want)
		}
		out.WriteString(rest[:at])
		out.WriteString(put)
		rest = rest[at+len(want):]
	}
	return out.String() + rest, nil
}
