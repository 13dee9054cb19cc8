package regional

import (
	"errors"
	"fmt"
	"log/slog"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// memory has the last promises of this process as leader, for a store that has lost them since. While it leads they are
// in its data folder too, at least as new as in the store: after a kill, the next process continues with them. One
// goroutine at a time uses it.
type memory struct {
	folder *node.Folder // nil for none
	log    *slog.Logger
	own    wire.Durable
	term   wire.Term // the zero Term for none
	led    bool      // a process before led at its end
	failed bool      // the last write failed
}

func newMemory(dir string, log *slog.Logger) *memory {
	m := &memory{log: log}
	var err error
	if m.folder, err = node.OpenFolder(dir); err != nil {
		log.Warn("promises are not kept in data_dir: if every regional is killed and the store is lost, visitors wait for the sessions of before",
			slog.Any("error", err))
		return m
	}
	var data []byte
	if data, m.led = m.folder.Promises(log); data == nil {
		return m
	}
	p, err := wire.DecodePromises(data)
	if err != nil {
		log.Warn("promises in data_dir cannot be read", slog.Any("error", err))
		return m
	}
	m.own, m.term = p.Durable, p.Owner
	if err := m.folder.DropPromises(); err != nil { // until this process leads
		log.Error("data_dir has promises that may become out of date: make it writable", slog.Any("error", err))
	}
	return m
}

// keep writes d to the folder. If that fails, it removes older promises there; it returns an error if neither works.
func (m *memory) keep(term wire.Term, d *wire.Durable) error {
	if m.folder == nil {
		return nil
	}
	data, err := wire.EncodeWhole(&wire.Promises{Owner: term, Durable: *d})
	if err == nil {
		err = m.folder.KeepPromises(data)
	}
	if err == nil {
		m.failed = false
		return nil
	}
	if !m.failed {
		m.failed = true
		m.log.Warn("promises are not kept in data_dir: make it writable", slog.Any("error", err))
	}
	if dropped := m.folder.DropPromises(); dropped != nil {
		return errors.Join(err, dropped)
	}
	return nil
}

// remember takes the promises at the end of a term. The folder keeps them only if the process ends: another may lead
// from now on.
func (m *memory) remember(term wire.Term, d wire.Durable, ends bool) {
	m.own, m.term = d, term
	if m.folder == nil {
		return
	}
	var err error
	if ends {
		err = m.keep(term, &d)
	} else {
		err = m.folder.DropPromises()
	}
	if err != nil {
		m.log.Error("data_dir has promises that are out of date: remove them, or make it writable", slog.Any("error", err))
	}
}

// close releases the folder.
func (m *memory) close() error {
	if m.folder == nil {
		return nil
	}
	if err := m.folder.Close(); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	return nil
}
