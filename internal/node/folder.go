package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Folder is the locked data_dir of a process. The lock proves that every earlier process with it has ended. One
// goroutine at a time uses it.
type Folder struct {
	dir   string
	lock  *os.File
	place fleettime.Place
}

// ErrFolderInUse is returned if another process uses the data_dir.
var ErrFolderInUse = errors.New("in use by another process: give every process a data_dir of its own")

const (
	lockFile  = "lock"
	livesFile = "instances.json"
	endedFile = "ended.json"
)

// OpenFolder creates the folder if needed and locks it. It returns ErrFolderInUse if another process holds the
// lock.
func OpenFolder(dir string) (*Folder, error) {
	fail := func(err error) (*Folder, error) { return nil, fmt.Errorf("data_dir %s: %w", dir, err) }
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	// The file is never replaced: the lock and the place refer to its inode.
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

// Close releases the lock.
func (f *Folder) Close() error { return f.lock.Close() }

// Succeeds returns the earlier instances that used the folder in the same place.
func (f *Folder) Succeeds(log *slog.Logger) []uint64 {
	var l fleettime.Lives
	err := f.read(livesFile, &l)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		log.Warn("instance IDs in data_dir cannot be read: permits of earlier processes count until lost_after",
			slog.Any("error", err))
		return nil
	}
	past, moved := l.Succeed(f.place)
	if moved {
		log.Warn("data_dir was copied or moved, or this machine has no id: it proves nothing about earlier processes, whose permits count until lost_after",
			slog.String("data_dir", f.dir), slog.Int("instances", len(l.Instances)))
	}
	return past
}

// Keep stores the instance IDs that used the folder.
func (f *Folder) Keep(instances []uint64) error {
	return f.write(livesFile, fleettime.Lives{Place: f.place, Instances: instances})
}

// KeepEnded stores revoked sessions for the next process, which rejects their tickets and reports them to its
// regional.
func (f *Folder) KeepEnded(all map[room.ID][]wire.End) error { return f.write(endedFile, all) }

// Ended returns the sessions that were revoked when the previous process stopped.
func (f *Folder) Ended(log *slog.Logger) (all map[room.ID][]wire.End) {
	err := f.read(endedFile, &all)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("revoked sessions in data_dir cannot be read: they count until their tickets expire", slog.Any("error", err))
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

// firstLine returns the first line of a file, or "" if it cannot be read.
func firstLine(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// WriteFile replaces a file atomically. It may contain keys, so only the owner can read it.
func WriteFile(name string, data []byte) error { return replaceFile(name, true, data) }

// replaceFile replaces a file atomically; durable means that it must survive a crash of the machine. An error names the
// file, not the temporary one: one that lasts keeps its text, and is logged once.
func replaceFile(name string, durable bool, data ...[]byte) (err error) {
	defer func() {
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			err = &fs.PathError{Op: failed.Op, Path: name, Err: failed.Err}
		}
	}()
	tmp, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // already renamed on success
	for _, part := range data {
		if _, err := tmp.Write(part); err != nil {
			return errors.Join(err, tmp.Close())
		}
	}
	var synced error
	if durable {
		synced = tmp.Sync()
	}
	if err := errors.Join(tmp.Chmod(0o600), synced, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), name); err != nil || !durable {
		return err
	}
	return syncFolder(filepath.Dir(name))
}

// syncFolder makes renames in a folder survive a crash of the machine.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
