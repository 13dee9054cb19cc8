package global

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/node"
	"vestibule/internal/page/checkpage"
)

// roomsFile is the rooms file with its pages, as last read.
type roomsFile struct {
	name  string // "" for none
	stamp string // of the file and its pages as last read
	seen  string // of the file and its pages as last seen
	good  bool   // the file as read is valid

	// The newest valid version.
	doc   room.Document
	pages map[string][]byte // by file; those of an invalid file too
}

// read reads the file if it has changed. A changed file must look the same twice before it is read: it may be half
// written, and half a file may be valid, with fewer rooms. doubts are about settings that are valid but probably
// unintended. The error is a fault of the file.
func (f *roomsFile) read() (changed bool, doubts []string, err error) {
	stamp := f.stampNow()
	settled := stamp == f.seen || f.stamp == ""
	f.seen = stamp
	if stamp == f.stamp || !settled {
		return false, nil, nil
	}
	doc, pages, doubts, err := readRooms(f.name)
	if f.stampNow() != stamp { // changed during the read: this is neither version
		f.stamp = "changing"
		return false, nil, nil
	}
	// The file may name new pages.
	f.pages = pages
	f.seen = f.stampNow()
	f.stamp = f.seen
	if f.good = err == nil; f.good {
		f.doc = doc
	}
	return true, doubts, err
}

// stampNow identifies the version of the file and of its pages.
func (f *roomsFile) stampNow() string {
	return node.StampOf(append(slices.Sorted(maps.Keys(f.pages)), f.name)...)
}

// readRooms reads and checks the rooms file and its pages. The document names pages by their content, the map by their
// file. doubts are about settings that are valid but probably unintended.
func readRooms(file string) (doc room.Document, pages map[string][]byte, doubts []string, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return room.Document{}, nil, nil, err
	}
	doc, err = roomfile.Parse(data)
	if err != nil {
		return room.Document{}, nil, nil, err
	}
	pages = map[string][]byte{}
	var faults []error
	for i := range doc.Rooms {
		r := &doc.Rooms[i]
		r.Pages(func(named *string) {
			if *named == "" {
				return
			}
			name := filepath.Join(filepath.Dir(file), *named)
			page, err := os.ReadFile(name)
			pages[name] = page
			if err == nil {
				var in []string
				in, err = checkpage.Check(page)
				for _, d := range append(in, roomdoc.PageDoubts(page)...) {
					doubts = append(doubts, *named+": "+d)
				}
			}
			if err != nil {
				faults = append(faults, fmt.Errorf("rooms[%d] %q: waiting_page: %w", i, r.Name, err))
				return
			}
			*named = roomdoc.Hash(page)
		})
	}
	if len(faults) == 0 { // refuse here, not on write, if no store can take it
		_, err = roomstore.Pack(1, doc, roomstore.SectionBytes)
		faults = append(faults, err)
	}
	return doc, pages, doubts, errors.Join(faults...)
}
