package roomstore

import (
	"bytes"
	"strings"
	"testing"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
)

// TestPagesOfAllSizes: a page is read back unchanged from its stored form, and no other data is taken for it.
func TestPagesOfAllSizes(t *testing.T) {
	for _, size := range []int{0, 1, 200_000, room.MaxPageBytes} {
		page := []byte(strings.Repeat("<p>wait</p>", size/11+1)[:size])
		d := NewDraft(&State{})
		hash := d.AddPage("p", page)
		stored := d.pages[hash].content
		if hash != roomdoc.Hash(page) || len(stored) > 100+size/10 {
			t.Errorf("%d bytes are stored as %d", size, len(stored))
		}
		if got, err := roomdoc.DecodePage(hash, stored); err != nil || !bytes.Equal(got, page) {
			t.Errorf("%d bytes are read as %d: %v", size, len(got), err)
		}
		for _, bad := range [][]byte{
			nil,
			{},
			[]byte("x"), stored[:len(stored)/2], compress.Gzip([]byte("another")),
			compress.Gzip(append(bytes.Clone(page), make([]byte, room.MaxPageBytes)...)),
		} {
			if got, err := roomdoc.DecodePage(hash, bad); err == nil && !bytes.Equal(got, page) {
				t.Errorf("%d bytes: read from something else", size)
			} else if err == nil && size > 0 {
				t.Errorf("%d bytes: no error", size)
			}
		}
	}
}
