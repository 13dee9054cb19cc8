package wire

import "context"

// Documents are the few small documents that a fleet shares: rooms, keys, pages, tokens. Globals write them, every node
// follows them. Its methods are safe for concurrent use.
type Documents interface {
	DocumentFeed
	DocumentStore
}

// DocumentFeed is the half of [Documents] that a node follows.
type DocumentFeed interface {
	// Watch calls handle with every version of the documents that are followed, and with
	// nil for one that is not there, until ctx ends, and returns ctx's error.
	Watch(ctx context.Context, handle func(key string, data []byte)) error

	// Get returns a document and its revision, (nil, 0) if there is none. The document may be stale.
	Get(ctx context.Context, key string) ([]byte, uint64, error)

	// Current returns nil where a Get that follows finds whatever was stored before the call. It is an error
	// where a copy of the store may be behind: any server that has one answers a Get.
	Current(ctx context.Context) error
}

// DocumentStore is the half of [Documents] that a global reads and writes.
type DocumentStore interface {
	// Get returns a document and its revision, (nil, 0) if there is none. The document may be stale.
	Get(ctx context.Context, key string) ([]byte, uint64, error)

	// Put writes a document that was at revision when it was read, 0 for one that did not
	// exist. It returns ErrChanged if it no longer is; any other error leaves open
	// whether it was written.
	Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error)

	// Limit returns how many bytes a document may have.
	Limit() int

	// List returns the documents that match a pattern ("page.*").
	List(ctx context.Context, pattern string) (map[string]Written, error)

	// Delete removes a document that is still at revision, and returns ErrChanged if it
	// is not.
	Delete(ctx context.Context, key string, revision uint64) error
}
