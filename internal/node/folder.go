package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Folder is the data_dir of a process that uses it alone: it is locked until Close, so
// whoever has it knows that every process which had it before has ended. It is used
// by one goroutine at a time.
type Folder struct {
	dir   string
	lock  *os.File
	place fleettime.Place
}

// ErrFolderInUse says that another process uses the data_dir.
var ErrFolderInUse = errors.New("in use by another process: give every process a data_dir of its own")

const (
	lockFile  = "lock"
	livesFile = "incarnations.json"
	endedFile = "ended.json"
)

// OpenFolder makes the folder if need be and locks it. It returns ErrFolderInUse where
// another process has it.
func OpenFolder(dir string) (*Folder, error) {
	fail := func(err error) (*Folder, error) { return nil, fmt.Errorf("data_dir %s: %w", dir, err) }
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	// Never replaced: what is locked, and what tells the place, is the file itself.
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err)
	}
	place, err := lockPlace(lock)
	if err != nil {
		return fail(errors.Join(err, lock.Close()))
	}
	return &Folder{dir: dir, lock: lock, place: place}, nil
}

// Close gives the folder to the next process.
func (f *Folder) Close() error { return f.lock.Close() }

// Succeeds returns the incarnations that this process succeeds: those that have used
// the folder, if it lies where it lay then.
func (f *Folder) Succeeds(log *slog.Logger) []uint64 {
	var l fleettime.Lives
	err := f.read(livesFile, &l)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		log.Warn("data_dir does not tell who used it before: what those processes may still hold counts until lost_after", slog.Any("error", err))
		return nil
	}
	past, moved := l.Succeed(f.place)
	if moved {
		log.Warn("data_dir was copied or moved, or this machine has no id: it proves nothing about the processes that used it; what they may still hold counts until lost_after",
			slog.String("data_dir", f.dir), slog.Int("incarnations", len(l.Incs)))
	}
	return past
}

// Keep stores which incarnations have used the folder, for the next process.
func (f *Folder) Keep(incs []uint64) error {
	return f.write(livesFile, fleettime.Lives{Place: f.place, Incs: incs})
}

// KeepEnded stores sessions that have ended, for the next process: it refuses their tickets, and tells its regional.
func (f *Folder) KeepEnded(all map[room.ID][]wire.End) error { return f.write(endedFile, all) }

// Ended returns the sessions that had ended when the process before this one was told to end.
func (f *Folder) Ended(log *slog.Logger) (all map[room.ID][]wire.End) {
	err := f.read(endedFile, &all)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("data_dir does not tell which sessions have ended: they count until their tickets expire", slog.Any("error", err))
		return nil
	}
	return all
}

func (f *Folder) read(name string, into any) error {
	data, err := os.ReadFile(filepath.Join(f.dir, name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("data_dir: %s: %w", name, err)
	}
	return nil
}

func (f *Folder) write(name string, v any) error {
	data, err := json.Marshal(v)
	if err == nil {
		err = WriteFile(filepath.Join(f.dir, name), data)
	}
	if err != nil {
		return fmt.Errorf("data_dir: %s: %w", name, err)
	}
	return nil
}

// firstLine returns the first line of a file, "" where it cannot be read.
func firstLine(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// WriteFile replaces a file in one step, so that a crash leaves the old one or
// the new one. The content may hold keys: only the owner may read it.
func WriteFile(name string, data []byte) error { return replaceFile(name, data, true) }

// replaceFile replaces a file in one step; durable says whether it is to outlive a crash of the machine.
func replaceFile(name string, data []byte, durable bool) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	if _, err := tmp.Write(data); err != nil {
		return errors.Join(err, tmp.Close())
	}
	var synced error
	if durable {
		synced = tmp.Sync()
	}
	if err := errors.Join(tmp.Chmod(0o600), synced, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}
