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

// pastFile has the snapshots of an edge: see admission.Engine.BeginSnapshot. It is a line of JSON (pastHead) and then
// the snapshots, one after the other.
const pastFile = "past"

type pastHead struct {
	Place   fleettime.Place `json:"place"`
	Written time.Time       `json:"written_at"` // by the machine's clock
	Sizes   []int           `json:"sizes"`      // of the snapshots, in bytes
	Sum     uint32          `json:"sum"`        // CRC-32C of all of them
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// KeepPast replaces the snapshots in the folder. They survive a crash of the machine: what may be stamped under them is
// settled after it too.
func (f *Folder) KeepPast(snapshots [][]byte) error {
	head := pastHead{Place: f.place, Written: time.Now()}
	for _, s := range snapshots {
		head.Sizes = append(head.Sizes, len(s))
		head.Sum = crc32.Update(head.Sum, castagnoli, s)
	}
	line, err := json.Marshal(head)
	if err == nil {
		err = replaceFile(filepath.Join(f.dir, pastFile), true, append([][]byte{append(line, '\n')}, snapshots...)...)
	}
	if err != nil {
		return fmt.Errorf("data_dir: %s: %w", pastFile, err)
	}
	return nil
}

// DropPast removes the snapshots from the folder, so that they do not return after a crash of the machine.
func (f *Folder) DropPast() error {
	err := os.Remove(filepath.Join(f.dir, pastFile))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = syncFolder(f.dir)
	}
	if err != nil {
		return fmt.Errorf("data_dir: %s: %w", pastFile, err)
	}
	return nil
}

// Pasts returns the snapshots that earlier processes left in the folder: none if it was copied, moved or restored from
// a backup since. If the machine was started anew, the lease of the process before is over.
func (f *Folder) Pasts(log *slog.Logger) [][]byte {
	snapshots, err := f.readPast()
	switch {
	case err == nil, errors.Is(err, os.ErrNotExist):
	default:
		log.Warn("the snapshots in data_dir prove nothing: permits of an earlier process that was killed count until its tickets expire", slog.String("data_dir", f.dir), slog.Any("reason", err))
	}
	return snapshots
}

func (f *Folder) readPast() ([][]byte, error) {
	name := filepath.Join(f.dir, pastFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	line, rest, _ := bytes.Cut(data, []byte{'\n'})
	var head pastHead
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, fmt.Errorf("%s: %w", pastFile, err)
	}
	if !head.Place.Same(f.place) {
		return nil, errors.New("the folder was copied or moved, or the machine has no ID and was started anew")
	}
	if up, err := sinceBoot(); err != nil || head.Place.Boot != f.place.Boot && up < bootedFor {
		return nil, errors.Join(err, errors.New("the machine was started a moment ago"))
	}
	if err := unchangedSince(name, head.Written); err != nil {
		return nil, err
	}
	var out [][]byte
	if crc32.Checksum(rest, castagnoli) != head.Sum {
		return nil, fmt.Errorf("%s: is damaged: the checksum differs", pastFile)
	}
	for i, n := range head.Sizes {
		if n < 0 || n > len(rest) {
			return nil, fmt.Errorf("%s: sizes[%d]: must be at most %d, got %d", pastFile, i, len(rest), n)
		}
		out, rest = append(out, rest[:n:n]), rest[n:]
	}
	return out, nil
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
		return fmt.Errorf("%s: was changed %v after it was written: it comes from a backup, or the machine's clock was set then", pastFile, late.Round(time.Millisecond))
	}
	return nil
}
