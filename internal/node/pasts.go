package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"vestibule/internal/core/fleettime"
)

// Files of parts: a line of JSON (partsHead) and then the parts, one after the other.
const (
	pastFile     = "past"     // the snapshots of an edge: see admission.Snapshots
	promisesFile = "promises" // the newest promises of a leading regional: see wire.EncodeWhole
)

type partsHead struct {
	Place   fleettime.Place `json:"place"`
	Written time.Time       `json:"written_at"` // by the machine's clock
	Sizes   []int           `json:"sizes"`      // of the parts, in bytes
	Sum     uint32          `json:"sum"`        // CRC-32C of all of them
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// KeepPast replaces the snapshots in the folder. They survive a crash of the machine: what may be stamped under them is
// settled after it too.
func (f *Folder) KeepPast(snapshots [][]byte) error { return f.keepParts(pastFile, true, snapshots) }

// DropPast removes the snapshots from the folder, so that they do not return after a crash of the machine.
func (f *Folder) DropPast() error { return f.drop(pastFile) }

// KeepPromises replaces the promises of a leading regional in the folder, for the next process on the same boot.
func (f *Folder) KeepPromises(data []byte) error {
	return f.keepParts(promisesFile, false, [][]byte{data})
}

// DropPromises removes the promises from the folder.
func (f *Folder) DropPromises() error { return f.drop(promisesFile) }

// Promises returns the promises in the folder, and whether the process before has kept any. They are nil if the folder
// was copied, moved or restored, or the machine was started anew since.
func (f *Folder) Promises(log *slog.Logger) (data []byte, kept bool) {
	parts, place, err := f.readParts(promisesFile)
	if err == nil && (len(parts) != 1 || place.Boot == "" || place.Boot != f.place.Boot) {
		err = fmt.Errorf("%s: is from before the machine was started", promisesFile)
	}
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			log.Info("the promises in data_dir prove nothing about a store that is lost",
				slog.String("data_dir", f.dir), slog.Any("reason", err))
		}
		return nil, !errors.Is(err, os.ErrNotExist)
	}
	return parts[0], true
}

// keepParts replaces a file of parts; durable means that it must survive a crash of the machine.
func (f *Folder) keepParts(name string, durable bool, parts [][]byte) error {
	head := partsHead{Place: f.place, Written: time.Now()}
	for _, s := range parts {
		head.Sizes = append(head.Sizes, len(s))
		head.Sum = crc32.Update(head.Sum, castagnoli, s)
	}
	line, err := json.Marshal(head)
	if err == nil {
		err = replaceFile(filepath.Join(f.dir, name), durable, append([][]byte{append(line, '\n')}, parts...)...)
	}
	if err != nil {
		return fmt.Errorf("data_dir: %s: %w", name, err)
	}
	return nil
}

// drop removes a file, also for the time after a crash of the machine.
func (f *Folder) drop(name string) error {
	err := os.Remove(filepath.Join(f.dir, name))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = syncFolder(f.dir)
	}
	if err != nil {
		return fmt.Errorf("data_dir: %s: %w", name, err)
	}
	return nil
}

// Pasts returns the snapshots that earlier processes left in the folder: none if it was copied, moved or restored from
// a backup since. If the machine was started anew, the lease of the process before is over.
func (f *Folder) Pasts(log *slog.Logger) [][]byte {
	snapshots, place, err := f.readParts(pastFile)
	if err == nil {
		if up, errUp := sinceBoot(); errUp != nil || place.Boot != f.place.Boot && up < bootedFor {
			snapshots, err = nil, errors.Join(errUp, errors.New("the machine was started a moment ago"))
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Warn("the snapshots in data_dir prove nothing: permits of an earlier process that was killed count until its tickets expire",
			slog.String("data_dir", f.dir), slog.Any("reason", err))
	}
	return snapshots
}

// readParts returns the parts of a file that this folder's last user wrote, and the place of the folder then.
func (f *Folder) readParts(name string) (parts [][]byte, place fleettime.Place, err error) {
	path := filepath.Join(f.dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, place, err
	}
	line, rest, _ := bytes.Cut(data, []byte{'\n'})
	var head partsHead
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, place, fmt.Errorf("%s: %w", name, err)
	}
	if !head.Place.Same(f.place) {
		return nil, place, errors.New("the folder was copied or moved, or the machine has no ID and was started anew")
	}
	if err := unchangedSince(path, head.Written); err != nil {
		return nil, place, err
	}
	if crc32.Checksum(rest, castagnoli) != head.Sum {
		return nil, place, fmt.Errorf("%s: is damaged: the checksum differs", name)
	}
	for i, n := range head.Sizes {
		if n < 0 || n > len(rest) {
			return nil, place, fmt.Errorf("%s: sizes[%d]: must be at most %d, got %d", name, i, len(rest), n)
		}
		parts, rest = append(parts, rest[:n:n]), rest[n:]
	}
	return parts, head.Place, nil
}

const (
	// restoreSlack is the longest time between the clock reading of a write and the change of the file.
	restoreSlack = 2 * time.Second

	// bootedFor is longer than a lease: that of a process from before the machine was started is over then.
	bootedFor = 10 * time.Second
)

// unchangedSince returns an error if a file was not changed when it was written, by the machine's clock: it was then
// restored from a backup, and may be older than the newest one.
func unchangedSince(name string, written time.Time) error {
	changed, err := changeTime(name)
	if err != nil {
		return err
	}
	if late := changed.Sub(written).Abs(); late > restoreSlack {
		return fmt.Errorf("%s: was changed %v after it was written: it comes from a backup, or the machine's clock was set then",
			pastFile, late.Round(time.Millisecond))
	}
	return nil
}
