// Package roomdoc defines the stored form of the rooms document and of waiting pages.
//
// A document that fits one value is stored plain. A larger one is divided into compressed sections, and the document
// lists their content hashes. A waiting page is stored compressed, under its content hash.
package roomdoc

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/strictjson"
)

const (
	// RoomsDocument is the document that every node follows.
	RoomsDocument = "rooms"

	sectionPrefix = "section."
	pagePrefix    = "page."
)

// SectionDocument returns the key of the section with this content hash.
func SectionDocument(hash string) string { return sectionPrefix + hash }

// PageDocument returns the key of the page with this content hash.
func PageDocument(hash string) string { return pagePrefix + hash }

// IsPage reports whether a key is that of a waiting page.
func IsPage(key string) bool { return strings.HasPrefix(key, pagePrefix) }

// ByContent reports whether a key names its content: that of a page or a section.
func ByContent(key string) bool {
	return strings.HasPrefix(key, sectionPrefix) || IsPage(key)
}

// Hash returns the content hash used in keys.
func Hash(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16])
}

const (
	// MaxSections bounds the sections of a document.
	MaxSections = 256

	// MaxUnpacked bounds the total uncompressed size of a document's sections, in bytes: the rooms and their marks.
	MaxUnpacked = room.MaxDocumentBytes + 8<<20
)

// Head is the stored rooms document: plain if it fits one value, else the names of its sections.
type Head struct {
	Version  uint64          `json:"version"`
	Document json.RawMessage `json:"document,omitempty"`
	Sections []string        `json:"sections,omitempty"`
}

// EncodeRooms returns the plain rooms document.
func EncodeRooms(version uint64, d room.Document) ([]byte, error) {
	data, err := room.EncodeDocument(d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Head{Version: version, Document: data})
}

// DecodeRooms decodes a plain rooms document.
func DecodeRooms(data []byte) (uint64, room.Document, error) {
	h, err := DecodeHead(data)
	if err != nil {
		return 0, room.Document{}, err
	}
	if len(h.Sections) > 0 {
		return 0, room.Document{}, errors.New("rooms document: sections: must be absent here")
	}
	doc, err := room.DecodeDocument(h.Document)
	return h.Version, doc, err
}

// DecodeHead decodes a rooms document of either form. It does not decode the rooms in it.
func DecodeHead(data []byte) (Head, error) {
	var h Head
	if err := strictjson.Decode(data, &h); err != nil {
		return h, fmt.Errorf("rooms document: %w", err)
	}
	switch {
	case h.Version == 0:
		return h, errors.New("rooms document: version: must be at least 1")
	case len(h.Document) > 0 && len(h.Sections) > 0:
		return h, errors.New("rooms document: sections: must be absent beside a document")
	case len(h.Sections) > MaxSections:
		return h, fmt.Errorf("rooms document: sections: must be at most %d, got %d", MaxSections, len(h.Sections))
	}
	return h, nil
}

// usualMessage is the default maximum size of a NATS message, in bytes, less room for its envelope.
const usualMessage = 1<<20 - 1<<10

// PageDoubts returns a warning if a waiting page may be too large for the store.
func PageDoubts(content []byte) []string {
	if n := len(compress.Gzip(content)); n > usualMessage {
		return []string{fmt.Sprintf("%d bytes, and %d with gzip: more than NATS servers take by default (1 MB); it is refused when it is to be stored, unless their max_payload is larger",
			len(content), n)}
	}
	return nil
}

// DecodePage returns the waiting page with this content hash from its stored form.
func DecodePage(hash string, data []byte) ([]byte, error) {
	page, err := compress.Gunzip(data, room.MaxPageBytes)
	if err != nil || Hash(page) != hash {
		return nil, ErrContent
	}
	return page, nil
}

// ErrContent means that a content does not match the hash in its name.
var ErrContent = errors.New("another content than its name says")

// DecodeSection decodes the rooms and hosts of the section with this content hash, of at most most bytes uncompressed.
// It returns the uncompressed size too.
func DecodeSection(hash string, data []byte, most int) (d room.Document, size int, err error) {
	plain, err := compress.Gunzip(data, most)
	if err != nil {
		return d, 0, err
	}
	if Hash(plain) != hash {
		return d, 0, ErrContent
	}
	var c struct {
		Document json.RawMessage `json:"document"`
	}
	if err := json.Unmarshal(plain, &c); err != nil {
		return d, 0, err
	}
	d, err = room.DecodeDocument(c.Document)
	return d, len(plain), err
}
