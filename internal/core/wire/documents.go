package wire

import "context" //nolint:depguard // interfaces that shells implement

// Documents are the small shared documents of a fleet: rooms, keys, pages, tokens. Globals write them, every node
// follows them. The methods are safe for concurrent use.
type Documents interface {
	DocumentFeed
	DocumentStore
}

// DocumentFeed is the part of [Documents] that nodes use.
type DocumentFeed interface {
	// Watch calls handle with every version of the followed documents, nil for a missing one, until ctx ends. It
	// returns ctx's error.
	Watch(ctx context.Context, handle func(key string, data []byte)) error

	// Get returns a document and its revision, (nil, 0) if it does not exist. The document may be stale.
	Get(ctx context.Context, key string) ([]byte, uint64, error)

	// Current returns nil if a later Get finds every write stored before this call. It returns an error if the local
	// copy of the store may be behind, since any server with a copy answers a Get.
	Current(ctx context.Context) error
}

// DocumentStore is the part of [Documents] that globals use.
type DocumentStore interface {
	// Get returns a document and its revision, (nil, 0) if it does not exist. The document may be stale.
	Get(ctx context.Context, key string) ([]byte, uint64, error)

	// Put writes a document last read at revision, 0 for a new one. It returns ErrChanged if the revision differs.
	// After any other error the document may or may not be written.
	Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error)

	// Limit returns the maximum size of a document, in bytes.
	Limit() int

	// List returns the documents that match a pattern ("page.*").
	List(ctx context.Context, pattern string) (map[string]Written, error)

	// Delete removes a document at revision. It returns ErrChanged if the revision differs.
	Delete(ctx context.Context, key string, revision uint64) error
}
